/* Reads memory with several threads and prints the best bytes per second of some passes.
 *
 *     cc -O3 -march=native -pthread bandwidth.c -o bandwidth && ./bandwidth THREADS MIB PASSES
 *
 * Each thread sums its own part of a buffer that is larger than the caches, as 64-bit words. The passes of all
 * threads begin together. A pass lasts from the first thread's start to the last one's end, by their own clocks:
 * whoever waits for them may be woken late.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LANES = 32 }; /* independent sums, so that no addition waits for another */

static pthread_barrier_t gate;
static int passes;

typedef struct {
    const uint64_t *words;
    size_t count;
    uint64_t sum;
    double began, ended;
} Part;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t read_all(const uint64_t *words, size_t count) {
    uint64_t lanes[LANES] = {0}, sum = 0;
    for (size_t i = 0; i + LANES <= count; i += LANES)
        for (int lane = 0; lane < LANES; lane++) lanes[lane] += words[i + (size_t)lane];
    for (int lane = 0; lane < LANES; lane++) sum += lanes[lane];
    return sum;
}

static void *work(void *given) {
    Part *part = given;
    for (int pass = 0; pass < passes; pass++) {
        pthread_barrier_wait(&gate);
        part->began = now();
        part->sum += read_all(part->words, part->count);
        part->ended = now();
        pthread_barrier_wait(&gate);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int threads = atoi(argv[1]);
    size_t bytes = (size_t)atoi(argv[2]) << 20, each = bytes / 8 / (size_t)threads;
    passes = atoi(argv[3]);
    uint64_t *buffer = malloc(bytes);
    pthread_t *ids = calloc((size_t)threads, sizeof *ids);
    Part *parts = calloc((size_t)threads, sizeof *parts);
    if (threads < 1 || passes < 1 || !buffer || !ids || !parts) return 1;
    memset(buffer, 1, bytes); /* every page has its own memory from here on */
    pthread_barrier_init(&gate, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        parts[i] = (Part){buffer + (size_t)i * each, each, 0, 0, 0};
        pthread_create(&ids[i], NULL, work, &parts[i]);
    }
    double best = 0;
    for (int pass = 0; pass < passes; pass++) {
        pthread_barrier_wait(&gate);
        pthread_barrier_wait(&gate);
        double began = parts[0].began, ended = parts[0].ended;
        for (int i = 1; i < threads; i++) {
            if (parts[i].began < began) began = parts[i].began;
            if (parts[i].ended > ended) ended = parts[i].ended;
        }
        double rate = (double)each * 8.0 * threads / (ended - began);
        if (rate > best) best = rate;
    }
    uint64_t sum = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        sum += parts[i].sum;
    }
    printf("%.0f\n", best);
    return sum == 42; /* the sum is used, so the reading is not optimised away */
}
