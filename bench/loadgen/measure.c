/* Clocks, CPU time of another process, and percentiles over every value measured. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "load.h"

static uint64_t read_clock(clockid_t clock) {
    struct timespec at;
    if (clock_gettime(clock, &at) != 0) fail("a clock cannot be read (has the process ended?)");
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

uint64_t now_ns(void) { return read_clock(CLOCK_MONOTONIC); }

uint64_t wall_ms(void) { return read_clock(CLOCK_REALTIME) / 1000000u; }

uint64_t cpu_ns(pid_t pid) {
    clockid_t clock;
    if (pid == 0) return 0;
    if (clock_getcpuclockid(pid, &clock) != 0) fail("process %d: its CPU time cannot be read", (int)pid);
    return read_clock(clock);
}

void samples_add(Samples *samples, uint64_t value) {
    if (samples->count == samples->size) {
        samples->size = samples->size ? 2 * samples->size : 4096;
        samples->values = regrab(samples->values, samples->size * sizeof *samples->values);
    }
    samples->values[samples->count++] = value;
}

static int compare(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

void samples_sort(Samples *samples) {
    if (samples->count > 1) qsort(samples->values, samples->count, sizeof *samples->values, compare);
}

double samples_us(const Samples *sorted, double part) {
    if (sorted->count == 0) return 0;
    size_t at = (size_t)(part * (double)(sorted->count - 1) + 0.5);
    return (double)sorted->values[at] / 1000.0;
}

void samples_print(Samples *samples, const char *name) {
    samples_sort(samples);
    printf("\"%s_p50_us\": %.1f, \"%s_p99_us\": %.1f, \"%s_p999_us\": %.1f, \"%s_max_us\": %.1f", name,
           samples_us(samples, 0.5), name, samples_us(samples, 0.99), name, samples_us(samples, 0.999), name,
           samples_us(samples, 1.0));
}

/* The finalizer of splitmix64: sums of it do not depend on the order of what is summed. */
uint64_t mix64(uint64_t value) {
    value += 0x9E3779B97F4A7C15u;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
}
