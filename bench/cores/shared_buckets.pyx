# cython: language_level=3, cdivision=True
"""Buckets in a file that several processes map: Kafka's sampled rate, one robust mutex for each bucket.

A charge first writes the new values to ``redo``, then applies them. If its process is killed in between, the next owner
of the mutex applies them again, so a charge is recorded as a whole or not at all. All sums are derived from the slots
and the columns, and are computed anew after such a death.
"""

import os

from libc.math cimport floor
from libc.stdint cimport int64_t
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport pause

cdef extern from "<errno.h>" nogil:
    int EOWNERDEAD, EBUSY

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_mutexattr_t:
        pass
    int PTHREAD_MUTEX_ROBUST, PTHREAD_PROCESS_SHARED
    int pthread_mutexattr_init(pthread_mutexattr_t*)
    int pthread_mutexattr_setrobust(pthread_mutexattr_t*, int)
    int pthread_mutexattr_setpshared(pthread_mutexattr_t*, int)
    int pthread_mutex_init(pthread_mutex_t*, pthread_mutexattr_t*)
    int pthread_mutex_lock(pthread_mutex_t*)
    int pthread_mutex_trylock(pthread_mutex_t*)
    int pthread_mutex_unlock(pthread_mutex_t*)
    int pthread_mutex_consistent(pthread_mutex_t*)

cdef extern from *:
    """
    /* Keeps the compiler from moving stores. A killed process has made its stores in the order of the program. */
    #define KEEP_ORDER() __atomic_signal_fence(__ATOMIC_SEQ_CST)
    """
    void KEEP_ORDER() noexcept nogil

cdef enum:
    RING = 32  # the most slots of a rate
    WORKERS = 8
    MAX_THROTTLE_TIME_MS = 2147483647

cdef struct Slot:
    int64_t value, start_ms, last_event_ms

cdef struct Column:  # what one worker has added to a bucket; only that worker writes it while it lives
    int64_t in_flight, charged, charges

cdef struct Redo:
    int64_t is_complete, at, used, worker
    Slot slot
    Column column

cdef struct Bucket:
    pthread_mutex_t lock
    double limit
    int64_t samples, window_ms, at, used, silent_until_ms, repairs
    int64_t total, oldest_ms, exact_before_ms, in_flight  # derived
    Redo redo
    Slot slots[RING]
    Column columns[WORKERS]

cdef struct Header:
    pthread_mutex_t alive[WORKERS]  # each worker keeps its own locked, so its death is seen by who tries to lock it
    int64_t stopped_at  # for tests: the step at which a process waits to be killed

cdef int stop_step = 0


cdef inline int64_t clock_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec * 1000 + now.tv_nsec // 1000000


cdef void derive(Bucket* b) noexcept nogil:
    cdef int64_t n, oldest = 0, last = 0
    b.total = b.in_flight = 0
    for n in range(b.used):
        b.total += b.slots[n].value
        oldest = b.slots[n].start_ms if n == 0 else min(oldest, b.slots[n].start_ms)
        last = b.slots[n].last_event_ms if n == 0 else min(last, b.slots[n].last_event_ms)
    b.oldest_ms = oldest
    b.exact_before_ms = last + b.samples * b.window_ms if b.used else 0
    for n in range(WORKERS):
        b.in_flight += b.columns[n].in_flight


cdef inline void stop(Header* header, int step) noexcept nogil:
    if stop_step == step:
        header.stopped_at = step
        while True:
            pause()


cdef inline void apply_redo(Header* header, Bucket* b) noexcept nogil:
    b.slots[b.redo.at] = b.redo.slot
    b.at = b.redo.at
    KEEP_ORDER()
    stop(header, 4)
    b.used = b.redo.used
    b.columns[b.redo.worker] = b.redo.column
    KEEP_ORDER()


cdef inline bint lock(Header* header, Bucket* b) noexcept nogil:
    cdef int code = pthread_mutex_lock(&b.lock)
    if code == EOWNERDEAD:
        if b.redo.is_complete:
            apply_redo(header, b)
            b.redo.is_complete = 0
        derive(b)
        b.repairs += 1
        KEEP_ORDER()
        code = pthread_mutex_consistent(&b.lock)
    return code == 0


cdef void purge(Bucket* b, int64_t now) noexcept nogil:
    cdef int64_t n
    for n in range(b.used):
        if now - b.slots[n].last_event_ms >= b.samples * b.window_ms:
            b.slots[n] = Slot(0, now, now)
    derive(b)


cdef inline int64_t elapsed(Bucket* b, int64_t since_oldest) noexcept nogil:
    cdef int64_t missing = b.samples - 1 - since_oldest // b.window_ms
    if missing > 0:
        since_oldest += missing * b.window_ms
    return since_oldest if since_oldest > 0 else 1


cdef int64_t throttle_ms(Bucket* b, int64_t now) noexcept nogil:
    # The smallest window has N - 1 samples. Below this sum no rate is over the limit.
    if b.total <= b.limit * (b.samples - 1) * b.window_ms / 1000 and now < b.exact_before_ms:
        return 0
    if now >= b.exact_before_ms:
        purge(b, now)
    cdef int64_t window = elapsed(b, now - b.oldest_ms)
    cdef double rate = b.total / (window / 1000.0)
    cdef double wait = (rate - b.limit) / b.limit * window
    if rate <= b.limit:
        return 0
    return MAX_THROTTLE_TIME_MS if wait >= MAX_THROTTLE_TIME_MS else <int64_t>floor(wait + 0.5)


cdef int64_t charge(
    Header* header, Bucket* b, int worker, int64_t amount, int64_t reserved, int64_t now
) noexcept nogil:
    """Charge under the lock. ``now`` -1 means to read the clock, also under the lock. Return the throttle time."""
    cdef int64_t evicted = 0, wait
    cdef bint is_new
    if not lock(header, b):
        return -1
    stop(header, 1)
    if now < 0:
        now = clock_ms()
    cdef Redo* redo = &b.redo
    redo.at, redo.used, redo.worker = b.at, b.used, worker
    is_new = b.used == 0 or now - b.slots[b.at].start_ms >= b.window_ms
    if is_new:
        if b.used:
            redo.at = b.at + 1 if b.at < b.samples else 0
        if redo.at == b.used:
            redo.used = b.used + 1
        else:
            evicted = b.slots[redo.at].value
        redo.slot = Slot(amount, now, now)
    else:
        redo.slot = Slot(b.slots[b.at].value + amount, b.slots[b.at].start_ms, now)
    redo.column = b.columns[worker]
    redo.column.in_flight -= reserved
    redo.column.charged += amount
    redo.column.charges += 1
    KEEP_ORDER()
    stop(header, 2)
    redo.is_complete = 1
    KEEP_ORDER()
    stop(header, 3)
    apply_redo(header, b)
    stop(header, 5)
    if is_new:
        derive(b)
    else:
        b.total += amount - evicted
        b.in_flight -= reserved
    KEEP_ORDER()
    redo.is_complete = 0
    KEEP_ORDER()
    stop(header, 6)
    wait = throttle_ms(b, now)
    if wait:
        b.silent_until_ms = max(b.silent_until_ms, now + wait)
    pthread_mutex_unlock(&b.lock)
    return wait


cdef bint has_room(Bucket* b, int64_t more, int64_t now) noexcept nogil:
    """Return whether the rate would be within the limit after a charge of ``more`` (``Rate.peek``)."""
    cdef int64_t n, total = more, oldest = now, skipped = -1
    if more and b.used and now - b.slots[b.at].start_ms >= b.window_ms:
        skipped = b.at + 1 if b.at < b.samples else 0
    for n in range(b.used):
        if n != skipped and now - b.slots[n].last_event_ms < b.samples * b.window_ms:
            total += b.slots[n].value
            oldest = min(oldest, b.slots[n].start_ms)
    return total / (elapsed(b, now - oldest) / 1000.0) <= b.limit


cdef class Buckets:
    """The buckets in the file ``path``. The process that creates it gives their number and the settings."""

    cdef Header* header
    cdef Bucket* buckets
    cdef int count, worker
    cdef size_t size

    def __init__(self, str path, *, int create=0, double limit=1e18, int samples=11, int window_ms=1000):
        if create and not 2 <= samples < RING:
            raise ValueError(f"samples must be from 2 to {RING - 1}")
        fd = os.open(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0), 0o600)
        try:
            if create:
                os.ftruncate(fd, sizeof(Header) + create * sizeof(Bucket))
            self.size = os.fstat(fd).st_size
            base = mmap(NULL, self.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        finally:
            os.close(fd)
        if base == MAP_FAILED:
            raise OSError("cannot map " + path)
        self.header, self.buckets = <Header*>base, <Bucket*>(<char*>base + sizeof(Header))
        self.count = <int>((self.size - sizeof(Header)) // sizeof(Bucket))
        self.worker = -1
        if create:
            self.set_up(limit, samples, window_ms)

    cdef set_up(self, double limit, int samples, int window_ms):
        cdef pthread_mutexattr_t attributes
        pthread_mutexattr_init(&attributes)
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST)
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED)
        for n in range(WORKERS):
            pthread_mutex_init(&self.header.alive[n], &attributes)
        for n in range(self.count):
            pthread_mutex_init(&self.buckets[n].lock, &attributes)
            self.buckets[n].limit, self.buckets[n].samples, self.buckets[n].window_ms = limit, samples, window_ms

    def __dealloc__(self):
        if self.header != NULL and self.worker < 0:  # a worker's robust mutex must stay mapped until the process ends
            munmap(self.header, self.size)

    cdef Bucket* at(self, int index) except NULL:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return &self.buckets[index]

    def join(self, int worker):
        """Become this worker. The share of a dead process that was the same worker is given back. Return its bytes."""
        if not 0 <= worker < WORKERS or self.worker >= 0:
            raise ValueError(f"cannot become worker {worker}")
        cdef int code = pthread_mutex_trylock(&self.header.alive[worker])
        if code not in (0, EOWNERDEAD):
            raise RuntimeError(f"another process is worker {worker}")
        returned = self.give_back(worker) if code == EOWNERDEAD else 0
        if code == EOWNERDEAD:
            pthread_mutex_consistent(&self.header.alive[worker])
        self.worker = worker
        return returned

    def reap(self):
        """Give back what dead workers had in flight. Return the bytes by worker."""
        returned = {}
        cdef int n, code
        for n in range(WORKERS):
            code = pthread_mutex_trylock(&self.header.alive[n])
            if code == EOWNERDEAD:
                returned[n] = self.give_back(n)
                pthread_mutex_consistent(&self.header.alive[n])
            if code != EBUSY:
                pthread_mutex_unlock(&self.header.alive[n])
        return returned

    cdef give_back(self, int worker):
        cdef int64_t returned = 0
        for n in range(self.count):
            lock(self.header, &self.buckets[n])
            returned += self.buckets[n].columns[worker].in_flight
            self.buckets[n].columns[worker].in_flight = 0
            derive(&self.buckets[n])
            pthread_mutex_unlock(&self.buckets[n].lock)
        return returned

    def admit(self, int index, int64_t amount):
        """Reserve ``amount`` and return 0, or return for how many ms to wait before the next try."""
        cdef Bucket* b = self.at(index)
        cdef int64_t now, wait = 0
        if self.worker < 0 or not lock(self.header, b):
            raise RuntimeError("join first")
        now = clock_ms()
        if now < b.silent_until_ms:
            wait = b.silent_until_ms - now
        elif b.in_flight and not has_room(b, b.in_flight + amount, now):
            wait = 1
        else:
            b.columns[self.worker].in_flight += amount
            b.in_flight += amount
        pthread_mutex_unlock(&b.lock)
        return wait

    def charge(self, int index, int64_t amount, *, int64_t reserved=0, int64_t now_ms=-1):
        """Record ``amount``, end a reservation, and return the throttle time in ms. Reads the clock under the lock."""
        if self.worker < 0:
            raise RuntimeError("join first")
        return charge(self.header, self.at(index), self.worker, amount, reserved, now_ms)

    def charge_many(self, int index, int64_t amount, int64_t count):
        """Charge ``count`` times in a tight loop, and return the ns that it took."""
        cdef timespec start, end
        cdef int64_t n
        cdef Bucket* b = self.at(index)
        if self.worker < 0:
            raise RuntimeError("join first")
        with nogil:
            clock_gettime(CLOCK_MONOTONIC, &start)
            for n in range(count):
                charge(self.header, b, self.worker, amount, 0, -1)
            clock_gettime(CLOCK_MONOTONIC, &end)
        return (end.tv_sec - start.tv_sec) * 1000000000 + end.tv_nsec - start.tv_nsec

    def has_room(self, int index, int64_t more, int64_t now_ms):
        """Return whether ``more`` could be charged at ``now_ms`` within the limit."""
        return has_room(self.at(index), more, now_ms)

    def state(self, int index):
        """Return the slots from the oldest on, the columns of all workers, and the sums."""
        cdef Bucket* b = self.at(index)
        lock(self.header, b)
        order = [(b.at + 1 + n) % b.used for n in range(b.used)]
        slots = [(b.slots[n].value, b.slots[n].start_ms, b.slots[n].last_event_ms) for n in order]
        columns = [(b.columns[n].in_flight, b.columns[n].charged, b.columns[n].charges) for n in range(WORKERS)]
        found = slots, columns, b.total, b.in_flight, b.repairs
        pthread_mutex_unlock(&b.lock)
        return found

    def in_flight_of(self, int index, int worker):
        """Return what one worker has in flight, without the lock."""
        return self.at(index).columns[worker].in_flight if 0 <= worker < WORKERS else 0

    def stop_at(self, int step):
        """Make the next charge of this process stop for ever at a step under the lock, as a test kills it there."""
        global stop_step
        stop_step = step
        self.header.stopped_at = 0

    @property
    def stopped_at(self):
        """The step at which a process has stopped, or 0."""
        return self.header.stopped_at
