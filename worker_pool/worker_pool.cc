#include "worker_pool/worker_pool.h"

#include "reactor/internal/check.h"
#include "worker_pool/internal/pool_impl.h"

namespace sluice {

absl::StatusOr<std::unique_ptr<WorkerPool>> WorkerPool::Create(
    WorkerPoolOptions options) {
  if (absl::Status s = ValidateWorkerPoolOptions(options); !s.ok()) return s;
  auto impl = std::make_unique<internal::PoolImpl>(std::move(options));
  if (absl::Status s = impl->Start(); !s.ok()) return s;
  return std::unique_ptr<WorkerPool>(new WorkerPool(std::move(impl)));
}

WorkerPool::WorkerPool(std::unique_ptr<internal::PoolImpl> impl)
    : impl_(std::move(impl)) {}

WorkerPool::~WorkerPool() {
  SLUICE_CHECK(!impl_->WithinJob(),
               "a WorkerPool was destroyed by one of its own jobs");
  (void)Shutdown();
}

absl::Status WorkerPool::Queue(internal::JobBox job) {
  return impl_->Submit(std::move(job));
}

absl::Status WorkerPool::QueueFor(
    std::unique_ptr<internal::ConnectionJob> job) {
  if (job->ref() == ConnectionRef()) {
    return absl::NotFoundError("the ref refers to no connection");
  }
  if (options().order == JobOrder::kPerConnection) {
    return impl_->SubmitInOrder(std::move(job));
  }
  return impl_->Submit(internal::JobBox(std::move(job)));
}

void WorkerPool::BeginShutdown() { BeginShutdown(options().at_shutdown); }
void WorkerPool::BeginShutdown(AtShutdown policy) {
  impl_->BeginShutdown(policy);
}

absl::Status WorkerPool::Shutdown() { return Shutdown(options().at_shutdown); }
absl::Status WorkerPool::Shutdown(AtShutdown policy) {
  impl_->BeginShutdown(policy);
  if (impl_->WithinJob()) {
    return absl::FailedPreconditionError(
        "Shutdown within a job of the pool cannot wait for that job");
  }
  impl_->Join();
  return absl::OkStatus();
}

WorkerPoolStats WorkerPool::stats() const { return impl_->stats(); }
int WorkerPool::threads() const { return impl_->threads(); }
const WorkerPoolOptions& WorkerPool::options() const {
  return impl_->options();
}

}  // namespace sluice
