#include "team.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace mashbox {
namespace {

constexpr int kSpins = 4000;    // some ten microseconds
constexpr int kYields = 200;    // between two steps, before a member sleeps

void pause() {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

// Denormal numbers cost a hundred cycles each and change no answer.
class FlushDenormals {
   public:
#if defined(__x86_64__)
    FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
    ~FlushDenormals() { _mm_setcsr(before_); }

   private:
    const unsigned before_;
#else
    FlushDenormals() {}
#endif
};

}  // namespace

Team::Team(int size) : size_(size) {
    for (int member = 1; member < size; ++member) threads_.emplace_back([this, member] { serve(member); });
}

Team::~Team() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        closing_ = true;
        round_.fetch_add(1);
    }
    started_.notify_all();
    for (auto& thread : threads_) thread.join();
}

void Team::run(const std::function<void(int)>& work, int active) {
    const FlushDenormals flush;
    {
        // Nobody runs now: who wakes up late takes part in the newest round, or in none.
        std::lock_guard<std::mutex> lock(mutex_);
        active_ = active < 1 || active > size_ ? size_ : active;
        work_ = &work;
        if (active_ > 1) round_.fetch_add(1);
    }
    if (active_ > 1) started_.notify_all();
    work(0);
    barrier();
}

void Team::barrier() {
    if (active_ == 1) return;
    const unsigned phase = phase_.load();
    if (arrived_.fetch_add(1) + 1 == active_) {
        arrived_.store(0);
        phase_.store(phase + 1);
        return;
    }
    for (int spins = 0; phase_.load(std::memory_order_acquire) == phase; ++spins) {
        if (spins < kSpins) {
            pause();
        } else {
            std::this_thread::yield();
        }
    }
}

void Team::serve(int member) {
    const FlushDenormals flush;
    unsigned seen = 0;
    for (;;) {
        for (int spins = 0; spins < kSpins + kYields && round_.load() == seen; ++spins) {
            if (spins < kSpins) {
                pause();
            } else {
                std::this_thread::yield();
            }
        }
        {
            std::unique_lock<std::mutex> lock(mutex_);
            started_.wait(lock, [&] { return round_.load() != seen; });
            if (closing_) return;
            seen = round_.load();
            if (member >= active_) continue;
        }
        (*work_)(member);
        barrier();
    }
}

}  // namespace mashbox
