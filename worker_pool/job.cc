#include "worker_pool/job.h"

#include <utility>

#include "reactor/connection.h"
#include "worker_pool/internal/drop_counter.h"

namespace sluice::internal {

// What is posted. It is destroyed on the loop or, if the post was refused, on
// the worker: without having run, it counts the drop.
class ConnectionJob::Delivery {
 public:
  explicit Delivery(std::unique_ptr<ConnectionJob> job)
      : job_(std::move(job)) {}
  Delivery(Delivery&&) noexcept = default;
  Delivery& operator=(Delivery&&) = delete;
  ~Delivery() {
    if (job_ == nullptr) return;
    DropCounter* drops = job_->drops;
    job_.reset();
    // After the destructors of the user's captures: whoever sees the count may
    // rely on their being gone.
    drops->Add();
    drops->Unref();
  }

  void operator()(Connection& connection) && {
    const std::unique_ptr<ConnectionJob> job = std::move(job_);
    // The pool may be gone; what is left of it ends with its last result.
    job->drops->Unref();
    job->Finish(connection);
  }

 private:
  std::unique_ptr<ConnectionJob> job_;
};

void ConnectionJob::Deliver(std::unique_ptr<ConnectionJob> job,
                            DropCounter* drops) {
  drops->Ref();
  job->drops = drops;
  const ConnectionRef ref = job->ref();
  // A refusal is counted by the delivery itself.
  (void)ref.Post(Delivery(std::move(job)));
}

}  // namespace sluice::internal
