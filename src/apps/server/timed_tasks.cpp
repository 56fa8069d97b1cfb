#include "apps/server/timed_tasks.h"

#include <algorithm>
#include <exception>

#include "apps/server/log.h"

namespace ebb::server {
namespace {

void call(const std::function<void()>& what) {
  try {
    what();
  } catch (const std::exception& e) {
    log_fault("a task failed", e);
  }
}

}  // namespace

TimedTasks::TimedTasks(std::chrono::milliseconds time)
    : time_(time),
      worker_([this](const std::stop_token& stop) { work(stop); }),
      watcher_([this](const std::stop_token& stop) { watch(stop); }) {}

TimedTasks::~TimedTasks() {
  finish({});
  worker_.join(), watcher_.join();
}

void TimedTasks::add(std::function<void()> task, std::function<void()> late) {
  std::unique_lock lock(mutex_);
  if (!tasks_.empty() && tasks_.front()->is_late) {
    lock.unlock();
    return call(late);
  }
  tasks_.push_back(
      std::make_shared<Task>(Task{std::move(task), std::move(late), Clock::now() + time_}));
  wake_.notify_all();
}

bool TimedTasks::finish(std::chrono::milliseconds time) {
  worker_.request_stop(), watcher_.request_stop();
  std::unique_lock lock(mutex_);
  std::erase_if(tasks_, [](const auto& t) { return !t->runs; });
  return wake_.wait_for(lock, time, [&] { return tasks_.empty(); });
}

void TimedTasks::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (wake_.wait(lock, stop, [&] { return !tasks_.empty(); }) && !stop.stop_requested()) {
    const auto task = tasks_.front();
    task->runs = true;
    lock.unlock();
    call(task->run);
    task->run = nullptr;
    lock.lock();
    tasks_.pop_front();
    wake_.notify_all();
  }
}

// All have the same time: they end in their order.
std::shared_ptr<TimedTasks::Task> TimedTasks::next_to_end() const {
  const auto at = std::ranges::find(tasks_, false, [](const auto& t) { return t->is_late; });
  return at == tasks_.end() ? nullptr : *at;
}

void TimedTasks::watch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const auto task = next_to_end();
    if (!task) {
      wake_.wait(lock, stop, [&] { return next_to_end() != nullptr; });
      continue;
    }
    if (wake_.wait_until(lock, stop, task->end, [&] { return next_to_end() != task; })) continue;
    if (stop.stop_requested()) return;
    task->is_late = true;
    if (!task->runs) std::erase(tasks_, task);
    lock.unlock();
    call(task->late);
    lock.lock();
  }
}

}  // namespace ebb::server
