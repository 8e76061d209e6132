# distutils: define_macros=_GNU_SOURCE=1
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The system calls of a relay in C: what ``relay_sockets`` does, without objects for each call.

No call waits, so Python's global lock is kept.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport free, malloc


cdef extern from "sys/socket.h" nogil:
    ssize_t recv(int fd, void* buffer, size_t size, int flags)
    ssize_t send(int fd, const void* buffer, size_t size, int flags)
    int MSG_MORE, MSG_NOSIGNAL


cdef extern from "unistd.h" nogil:
    int c_close "close"(int fd)
    int pipe2(int* fds, int flags)
    ssize_t c_read "read"(int fd, void* buffer, size_t size)


cdef extern from "fcntl.h" nogil:
    ssize_t c_splice "splice"(int source, void* offset, int target, void* target_offset, size_t size, unsigned int flags)
    int fcntl(int fd, int command, ...)
    int F_SETPIPE_SZ, O_CLOEXEC, O_NONBLOCK
    unsigned int SPLICE_F_MOVE, SPLICE_F_NONBLOCK


cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        int fd

    struct epoll_event:
        unsigned int events
        epoll_data_t data

    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int fd, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int most, int timeout_ms)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL
    unsigned int EPOLLIN


cdef enum:
    BUFFER_BYTES = 262144
    PIPE_BYTES = 1048576
    MOST_READY = 64


cdef class NativeSockets:
    """Watches sockets by their file descriptors, and reads them into one buffer."""

    cdef int _epoll
    cdef int _pipe[2]
    cdef char* _buffer

    def __cinit__(self):
        self._epoll = self._pipe[0] = self._pipe[1] = -1
        self._buffer = <char*>malloc(BUFFER_BYTES)
        if self._buffer == NULL:
            raise MemoryError
        self._epoll = epoll_create1(EPOLL_CLOEXEC)
        if self._epoll < 0:
            PyErr_SetFromErrno(OSError)
        if pipe2(self._pipe, O_CLOEXEC | O_NONBLOCK) < 0:
            PyErr_SetFromErrno(OSError)
        fcntl(self._pipe[1], F_SETPIPE_SZ, PIPE_BYTES)  # where this is not allowed, the pipe holds 64 KiB

    def __dealloc__(self):
        self.close()
        free(self._buffer)

    def fileno(self):
        """Return a file descriptor that is readable while a watched socket is."""
        return self._epoll

    def close(self):
        """Watch no socket any more."""
        for fd in (self._epoll, self._pipe[0], self._pipe[1]):
            if fd >= 0:
                c_close(fd)
        self._epoll = self._pipe[0] = self._pipe[1] = -1

    def watch(self, int fd):
        """Report from now on when the socket is readable, has ended, or is lost."""
        cdef epoll_event event
        event.events = EPOLLIN
        event.data.fd = fd
        if epoll_ctl(self._epoll, EPOLL_CTL_ADD, fd, &event) < 0:
            PyErr_SetFromErrno(OSError)

    def forget(self, int fd):
        """Report nothing of the socket any more. If it is closed, its registration has ended."""
        cdef epoll_event event
        epoll_ctl(self._epoll, EPOLL_CTL_DEL, fd, &event)

    def ready(self):
        """Return the watched sockets that are readable, without a wait."""
        cdef epoll_event events[MOST_READY]
        cdef int count = epoll_wait(self._epoll, events, MOST_READY, 0)
        cdef int index
        cdef list found = []
        for index in range(count):
            found.append(events[index].data.fd)
        return found

    def read(self, int fd, Py_ssize_t most):
        """Read into the buffer, and return the number of bytes: 0 at the end of the stream, -1 if none are there."""
        if most <= 0 or most > BUFFER_BYTES:
            most = BUFFER_BYTES
        return _count(recv(fd, self._buffer, most, 0), -1)

    def part(self, Py_ssize_t begin, Py_ssize_t end):
        """Return a part of the buffer as an object."""
        if begin < 0 or begin > end or end > BUFFER_BYTES:
            raise IndexError
        return PyBytes_FromStringAndSize(self._buffer + begin, end - begin)

    def write(self, int fd, Py_ssize_t begin, Py_ssize_t end, *, bint has_more):
        """Write a part of the buffer, as far as the system has room for it, and return the number of bytes."""
        if begin < 0 or begin > end or end > BUFFER_BYTES:
            raise IndexError
        return _count(send(fd, self._buffer + begin, end - begin, MSG_NOSIGNAL | (MSG_MORE if has_more else 0)), 0)

    def splice_in(self, int fd, Py_ssize_t most):
        """Read into the pipe, which must be empty, and return what ``read`` returns."""
        if most > BUFFER_BYTES:
            most = BUFFER_BYTES
        return _count(c_splice(fd, NULL, self._pipe[1], NULL, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK), -1)

    def splice_out(self, int fd, Py_ssize_t count):
        """Write ``count`` bytes of the pipe as ``write`` does, and return how many of them were written."""
        return _count(c_splice(self._pipe[0], NULL, fd, NULL, count, SPLICE_F_MOVE | SPLICE_F_NONBLOCK), 0)

    def take_spliced(self, Py_ssize_t count):
        """Take the last ``count`` bytes out of the pipe, which is empty after this."""
        cdef bytes taken = PyBytes_FromStringAndSize(NULL, count)
        if c_read(self._pipe[0], PyBytes_AS_STRING(taken), count) != count:
            PyErr_SetFromErrno(OSError)
        return taken


cdef Py_ssize_t _count(ssize_t count, Py_ssize_t nothing) except -2:
    """Return the result of a system call, or ``nothing`` if it would have to wait."""
    if count < 0:
        if errno == EAGAIN or errno == EINTR:
            return nothing
        PyErr_SetFromErrno(OSError)
    return count
