// A small team of threads that run one function together, with barriers inside it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace mashbox {

// Waits spin for some microseconds, then give the processor away: on a busy machine a thread that is waited
// for may be the one that has none.
class Team {
   public:
    explicit Team(int size);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    // Runs `work(member)` on the first `active` members, the calling thread being member 0, and returns when
    // they are done; 0: on all.
    void run(const std::function<void(int)>& work, int active = 0);
    // Within `work`: how many members run it.
    int active() const { return active_; }
    // Within `work`: returns when every one of them has come here.
    void barrier();

   private:
    void serve(int member);

    const int size_;
    std::vector<std::thread> threads_;
    const std::function<void(int)>* work_ = nullptr;
    int active_ = 1;
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<unsigned> phase_{0};
    alignas(64) std::atomic<unsigned> round_{0};
    bool closing_ = false;
    std::mutex mutex_;
    std::condition_variable started_;
};

}  // namespace mashbox
