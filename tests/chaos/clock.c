/* Sets the wall clock of one process: preloaded, it adds the seconds that stand in the file $CHAOS_CLOCK (one int64,
 * mapped, so a change counts at once). Monotonic clocks are left alone, as a step of the machine's clock leaves them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real)(clockid_t, struct timespec *);
static const volatile int64_t *seconds;

__attribute__((constructor)) static void open_clock(void) {
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CHAOS_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *map = mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) seconds = map;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    int failed = real ? real(clock, out) : (int)syscall(SYS_clock_gettime, clock, out);
    if (!failed && seconds && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) out->tv_sec += *seconds;
    return failed;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
