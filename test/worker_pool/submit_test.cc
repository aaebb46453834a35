// What a job may be, and how its result reaches the connection.

#include <array>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/support/loop_block.h"
#include "test/worker_pool/pool_support.h"

namespace sluice::test {
namespace {

using ::testing::HasSubstr;

// One connection, one pool, and the outcome of one job.
class SubmitTest : public ::testing::TestWithParam<JobOrder> {
 protected:
  static WorkerPoolOptions Options() {
    WorkerPoolOptions options = PoolOptions(2);
    options.order = GetParam();
    return options;
  }

  // What `done` is told about `work`, which is checked to run on the loop.
  template <typename Outcome, typename Work>
  Outcome Ask(Work&& work) {
    Event told;
    std::unique_ptr<Outcome> outcome;
    const absl::Status submitted =
        pool_->Submit(side_.ref(), std::forward<Work>(work),
                      [&](Connection& c, Outcome result) {
                        EXPECT_EQ(c.ref(), side_.ref());
                        EXPECT_TRUE(c.reactor().InLoop());
                        outcome = std::make_unique<Outcome>(std::move(result));
                        told.Set();
                      });
    EXPECT_TRUE(submitted.ok()) << submitted.ToString();
    EXPECT_TRUE(told.Wait());
    return outcome != nullptr ? std::move(*outcome)
                              : Outcome(absl::UnknownError("not told"));
  }

  ConnectedServer side_{1};
  std::unique_ptr<WorkerPool> pool_ = MakePool(Options());
};

TEST_P(SubmitTest, AValue) {
  const auto result = Ask<absl::StatusOr<int>>([] { return 42; });
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(*result, 42);
}

TEST_P(SubmitTest, AMoveOnlyValueFromMoveOnlyWork) {
  auto question = std::make_unique<std::string>("six by nine");
  const auto result = Ask<absl::StatusOr<std::unique_ptr<std::string>>>(
      [question = std::move(question)]() mutable {
        return std::move(question);
      });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(**result, "six by nine");
}

TEST_P(SubmitTest, NothingIsAStatus) {
  std::atomic<bool> ran{false};
  EXPECT_TRUE(Ask<absl::Status>([&] { ran = true; }).ok());
  EXPECT_TRUE(ran);
}

TEST_P(SubmitTest, AStatusIsNotNested) {
  EXPECT_TRUE(Ask<absl::Status>([] { return absl::OkStatus(); }).ok());
  const absl::Status s =
      Ask<absl::Status>([] { return absl::DataLossError("gone"); });
  EXPECT_EQ(s, absl::DataLossError("gone"));
}

TEST_P(SubmitTest, AStatusOrIsNotNested) {
  using Reply = absl::StatusOr<std::string>;
  const Reply good = Ask<Reply>([]() -> Reply { return "row"; });
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, "row");
  const Reply bad =
      Ask<Reply>([]() -> Reply { return absl::AbortedError("retry"); });
  EXPECT_EQ(bad.status(), absl::AbortedError("retry"));
}

TEST_P(SubmitTest, AReferenceIsCopied) {
  const std::string text = "kept elsewhere";
  const auto result = Ask<absl::StatusOr<std::string>>(
      [&text]() -> const std::string& { return text; });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*result, text);
}

struct alignas(64) Aligned {
  std::array<char, 300> bytes = {};
};

TEST_P(SubmitTest, LargeAndAlignedCaptures) {
  Aligned aligned;
  aligned.bytes[299] = 'x';
  const auto result = Ask<absl::StatusOr<char>>([aligned] {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(&aligned) % 64, 0u);
    return aligned.bytes[299];
  });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*result, 'x');
}

TEST_P(SubmitTest, AFunctionObjectThatIsUsedUp) {
  struct Once {
    std::string text = "once";
    std::string operator()() && { return std::move(text); }
  };
  const auto result = Ask<absl::StatusOr<std::string>>(Once());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*result, "once");
}

TEST_P(SubmitTest, ExceptionsReachDone) {
  const auto known = Ask<absl::StatusOr<int>>(
      []() -> int { throw std::runtime_error("no such table"); });
  EXPECT_EQ(known.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(known.status().ToString(), HasSubstr("no such table"));
  const auto unknown = Ask<absl::Status>([] { throw 42; });
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInternal);
  const auto either = Ask<absl::StatusOr<int>>(
      []() -> absl::StatusOr<int> { throw std::logic_error("bug"); });
  EXPECT_THAT(either.status().ToString(), HasSubstr("bug"));
  // It is the job that ended, not the worker.
  EXPECT_EQ(*Ask<absl::StatusOr<int>>([] { return 1; }), 1);
  ASSERT_TRUE(pool_->Shutdown().ok());
  EXPECT_EQ(pool_->stats().exceptions, 3u);
  EXPECT_EQ(pool_->stats().done, 4u);
  ExpectBalanced(pool_->stats());
}

// Its move constructor throws when the result is put where done finds it.
struct ThrowsWhenMoved {
  ThrowsWhenMoved() = default;
  ThrowsWhenMoved(ThrowsWhenMoved&&) { throw std::runtime_error("moved"); }
};

TEST_P(SubmitTest, AResultThatThrowsWhenMoved) {
  Event told;
  // As text: ThreadSanitizer does not see the counter two copies of a status
  // would share.
  std::string text;
  ASSERT_TRUE(pool_
                  ->Submit(
                      side_.ref(), [] { return ThrowsWhenMoved(); },
                      [&](Connection&, absl::StatusOr<ThrowsWhenMoved> r) {
                        EXPECT_TRUE(absl::IsInternal(r.status()));
                        text = r.status().ToString();
                        told.Set();
                      })
                  .ok());
  ASSERT_TRUE(told.Wait());
  EXPECT_THAT(text, HasSubstr("moved"));
}

TEST_P(SubmitTest, WorkIsDestroyedBeforeDoneAndDoneAfterItsCall) {
  auto in_work = std::make_shared<int>(1);
  auto in_done = std::make_shared<int>(2);
  const std::weak_ptr<int> work_lives = in_work;
  const std::weak_ptr<int> done_lives = in_done;
  Event told;
  std::atomic<bool> work_was_gone{false};
  ASSERT_TRUE(
      pool_
          ->Submit(
              side_.ref(), [in_work = std::move(in_work)] {},
              [&, in_done = std::move(in_done)](Connection&, absl::Status) {
                work_was_gone = work_lives.expired();
                told.Set();
              })
          .ok());
  ASSERT_TRUE(told.Wait());
  EXPECT_TRUE(work_was_gone);
  TurnOver(side_.loop());
  EXPECT_TRUE(done_lives.expired());
}

TEST_P(SubmitTest, DoneWritesToItsClient) {
  ASSERT_TRUE(pool_
                  ->Submit(
                      side_.ref(), [] { return std::string("answer"); },
                      [](Connection& c, absl::StatusOr<std::string> text) {
                        EXPECT_TRUE(c.Write(*text).ok());
                      })
                  .ok());
  EXPECT_EQ(side_.client().ReadExactly(6), "answer");
}

TEST_P(SubmitTest, AnExceptionOutOfDoneIsTheConnections) {
  ASSERT_TRUE(pool_
                  ->Submit(
                      side_.ref(), [] {},
                      [](Connection&, absl::Status) -> void {
                        throw std::runtime_error("from done");
                      })
                  .ok());
  EXPECT_TRUE(side_.server().WaitForNoConnections());
  EXPECT_EQ(side_.server().stats().handler_exceptions, 1u);
  ASSERT_TRUE(pool_->Shutdown().ok());
  EXPECT_EQ(pool_->stats().dropped, 0u);
  EXPECT_EQ(pool_->stats().exceptions, 0u);
}

TEST_P(SubmitTest, ARefToNothingIsNotFound) {
  auto captured = std::make_shared<int>(1);
  const absl::Status s = pool_->Submit(
      ConnectionRef(), [captured] { ADD_FAILURE() << "ran"; },
      [](Connection&, absl::Status) { ADD_FAILURE() << "told"; });
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(captured.use_count(), 1);
  EXPECT_EQ(pool_->stats().submitted, 0u);
}

TEST_P(SubmitTest, ResultsForConnectionsThatAreGoneAreDroppedAndCounted) {
  constexpr int kJobs = 20;
  auto captured = std::make_shared<int>(1);
  std::atomic<int> ran{0};
  side_.CloseClients();
  for (int i = 0; i < kJobs; ++i) {
    ASSERT_TRUE(pool_
                    ->Submit(
                        side_.ref(), [&ran] { ++ran; },
                        [captured](Connection&, absl::Status) {
                          ADD_FAILURE() << "called for a stranger";
                        })
                    .ok());
  }
  ASSERT_TRUE(pool_->Shutdown().ok());
  TurnOver(side_.loop());
  EXPECT_EQ(ran, kJobs);
  EXPECT_EQ(pool_->stats().dropped, uint64_t{kJobs});
  EXPECT_EQ(pool_->stats().done, uint64_t{kJobs});
  EXPECT_EQ(captured.use_count(), 1);
  ExpectBalanced(pool_->stats());
}

// The post was accepted while the connection lived; its loop finds it gone.
TEST_P(SubmitTest, ResultsThatArriveTooLateAreCountedToo) {
  constexpr int kJobs = 5;
  auto captured = std::make_shared<int>(1);
  LoopBlock block(side_.loop());
  // Lies in the mailbox before the results do.
  ASSERT_TRUE(side_.ref().Close(CloseMode::kNow).ok());
  for (int i = 0; i < kJobs; ++i) {
    ASSERT_TRUE(pool_
                    ->Submit(
                        side_.ref(), [] {},
                        [captured](Connection&, absl::Status) {
                          ADD_FAILURE() << "called for a closed connection";
                        })
                    .ok());
  }
  ASSERT_TRUE(pool_->Shutdown().ok());
  EXPECT_EQ(pool_->stats().dropped, 0u) << "they are under way";
  block.Release();
  EXPECT_TRUE(WaitUntil([&] { return pool_->stats().dropped == kJobs; }));
  EXPECT_EQ(captured.use_count(), 1);
  TurnOver(side_.loop());
  EXPECT_EQ(side_.server().stats().posts_dropped, uint64_t{kJobs});
}

// From inside the work and from inside done.
TEST_P(SubmitTest, JobsSubmitJobs) {
  Event over;
  ASSERT_TRUE(pool_
                  ->Submit(
                      side_.ref(), [this] { return pool_->Submit([] {}); },
                      [&](Connection& c, absl::Status inner) {
                        EXPECT_TRUE(inner.ok()) << inner.ToString();
                        EXPECT_TRUE(
                            pool_
                                ->Submit(
                                    c.ref(), [] { return 7; },
                                    [&](Connection&, absl::StatusOr<int> r) {
                                      EXPECT_EQ(*r, 7);
                                      over.Set();
                                    })
                                .ok());
                      })
                  .ok());
  ASSERT_TRUE(over.Wait());
}

// Moving the arguments throws: nothing was queued, nothing is left behind.
TEST_P(SubmitTest, ArgumentsThatThrowWhenMoved) {
  auto captured = std::make_shared<int>(1);
  const auto work = [captured] {};
  const auto done = [captured](Connection&, absl::Status) {};
  EXPECT_THROW(
      (void)pool_->Submit([t = ThrowsWhenMoved(), captured] { (void)t; }),
      std::runtime_error);
  EXPECT_THROW(
      (void)pool_->Submit(
          side_.ref(), [t = ThrowsWhenMoved(), captured] { (void)t; }, done),
      std::runtime_error);
  EXPECT_THROW((void)pool_->Submit(side_.ref(), work,
                                   [t = ThrowsWhenMoved(), captured](
                                       Connection&, absl::Status) { (void)t; }),
               std::runtime_error);
  EXPECT_EQ(captured.use_count(), 3);
  EXPECT_EQ(pool_->stats().submitted, 0u);
  EXPECT_TRUE(Ask<absl::Status>(work).ok());
}

INSTANTIATE_TEST_SUITE_P(Orders, SubmitTest,
                         ::testing::Values(JobOrder::kUnordered,
                                           JobOrder::kPerConnection));

// --- Without a connection

TEST(PlainSubmit, EveryKindOfCapture) {
  auto pool = MakePool(PoolOptions(2));
  std::atomic<int> sum{0};
  auto one = std::make_unique<int>(1);
  const std::string text(100, 'x');
  const std::array<char, 16> bytes = {};
  std::atomic<int>* target = &sum;
  EXPECT_TRUE(pool->Submit([&sum] { sum += 1; }).ok());
  EXPECT_TRUE(pool->Submit([&sum, one = std::move(one)] { sum += *one; }).ok());
  EXPECT_TRUE(
      pool->Submit([&sum, text] { sum += static_cast<int>(text.size()); })
          .ok());
  EXPECT_TRUE(pool->Submit([target, bytes] { *target += bytes[3] + 1; }).ok());
  const auto named = [&sum] { sum += 1000; };
  EXPECT_TRUE(pool->Submit(named).ok());
  EXPECT_TRUE(pool->Submit(+[] {}).ok());
  ASSERT_TRUE(pool->Shutdown().ok());
  EXPECT_EQ(sum, 1 + 1 + 100 + 1 + 1000);
  EXPECT_EQ(pool->stats().done, 6u);
}

TEST(PlainSubmit, ExceptionsAreCountedAndLogged) {
  WorkerPoolOptions options = PoolOptions(1);
  std::mutex mutex;
  std::vector<std::string> lines;
  options.log = [&](LogLevel level, std::string_view line) {
    EXPECT_EQ(level, LogLevel::kError);
    std::lock_guard<std::mutex> lock(mutex);
    lines.emplace_back(line);
  };
  auto pool = MakePool(options);
  auto captured = std::make_shared<int>(1);
  EXPECT_TRUE(pool->Submit([] { throw std::runtime_error("disk full"); }).ok());
  EXPECT_TRUE(pool->Submit([captured] { throw captured; }).ok());
  ASSERT_TRUE(pool->Shutdown().ok());
  EXPECT_EQ(pool->stats().exceptions, 2u);
  EXPECT_EQ(captured.use_count(), 1);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], HasSubstr("disk full"));
}

}  // namespace
}  // namespace sluice::test
