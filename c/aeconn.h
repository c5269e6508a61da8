/* SPDX-License-Identifier: BSD-3-Clause */
/* The C interface of aeconn: an event loop with one descriptor, and connections over any transport.
 *
 * Words:
 *   - Where a connection goes and how is a URL, with options behind it: "rdma://10.0.0.1:6379",
 *     "tls://0.0.0.0:6380?cert=c.pem&key=k.pem". docs/options.md has all of them.
 *   - Calls that move data mean what read(2) and write(2) mean: a count, 0 at end of stream, -1
 * with errno, EAGAIN for "not now". Calls that set something up return NULL or -1, errno, and a
 *     sentence from aeconn_error().
 *   - Durations are nanoseconds. Less than 0 is "no limit" where a call waits.
 *   - Handlers run from the loop only, never from inside a call of yours, and they may close,
 * replace or remove anything, what they were called for included. They are level-triggered: called
 * again while there is something to read or room to write.
 *
 * Threads: a loop, and all that is on it, belongs to the thread that dispatches it. aeconn_post()
 * may be called from any thread, aeconn_error() is each thread's own.
 *
 * Ownership: what a function whose name ends in _new, or aeconn_listen, _connect, _adopt, _register
 * returns is the caller's, until _free or aeconn_close(). Free a loop last; what is on it ends with
 * it, but has to be given back all the same. Texts stay valid as each function says.
 *
 * A NULL handle is an error where a function has one to report, and otherwise ignored. */

#ifndef AECONN_H
#define AECONN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Handles. What is behind them is the library's own. */
typedef struct aeconn_loop aeconn_loop;
typedef struct aeconn_listener aeconn_listener;
typedef struct aeconn_conn aeconn_conn;
typedef struct aeconn_memory aeconn_memory;
typedef struct aeconn_group aeconn_group;
typedef struct aeconn_redial aeconn_redial;

/* Directions. */
enum {
  AECONN_READABLE = 1, /* there is something to read, or the end */
  AECONN_WRITABLE = 2  /* there is room to write */
};

/* How far a connection is; it never goes back. */
enum aeconn_state {
  AECONN_NEW,        /* has not begun */
  AECONN_CONNECTING, /* no answer yet */
  AECONN_CONNECTED,  /* reads and writes work; also after the peer's half-close */
  AECONN_CLOSED,     /* both directions have ended */
  AECONN_FAILED      /* aeconn_last_error() says why */
};

/* --- the library ----------------------------------------------------------------------------- */

/* "0.2.0" */
const char* aeconn_version(void);
/* What went wrong in the last call of this thread that failed to set something up, in one sentence;
 * valid until its next such call. Never NULL. */
const char* aeconn_error(void);
/* Whether this build and machine have the transport: 1; 0, and aeconn_error() says why not. */
int aeconn_has_transport(const char* scheme);
/* Defaults for every URL of a transport, "cert=c.pem&key=k.pem", in place of those set before. The
 * process has one set for each transport: call it before other threads use that. 0, or -1 with
 * errno and a sentence, and then nothing has changed. */
int aeconn_configure(const char* scheme, const char* options);

/* Runs once with a text of `size` bytes, ended by NUL, which is valid during the call. */
typedef void (*aeconn_text_fn)(void* context, const char* text, size_t size);
/* A name and a value, valid during the call. */
typedef void (*aeconn_fact_fn)(void* context, const char* name, const char* value);

/* Is told whenever a connection to a list of schemes ("rdma|tcp://...") stands by another than the
 * first: the URL without its options, and why the others were not taken. Runs on the thread of the
 * connection's loop, on several at once where there are several, and must not close connections.
 * NULL removes. Set it before connections are made. */
int aeconn_on_fallback(aeconn_fact_fn fn, void* context);

/* A call of this thread that waits (aeconn_wait() and the others there, aeconn_connect_wait()) asks
 * `fn` whenever a signal handler ran meanwhile: 0, it goes on waiting; another number, it ends with
 * errno EINTR. So a host's own handlers of signals can be served: an interpreter's Ctrl-C. Without
 * `fn` (NULL, as at first) signals end no call. What a call that ended so had read is lost, as
 * where its time is over. */
void aeconn_on_signal(int (*fn)(void* context), void* context);

/* --- the loop -------------------------------------------------------------------------------- */

/* NULL with errno and a sentence where the kernel gives no descriptor. */
aeconn_loop* aeconn_loop_new(void);
/* Not from inside a handler. */
void aeconn_loop_free(aeconn_loop* loop);
/* Readable (POLLIN) exactly while aeconn_dispatch() has something to do: poll it in a loop of your
 * own, by whatever means, level-triggered. The loop's; do not read or close it. -1 with errno where
 * the kernel gives none. */
int aeconn_descriptor(aeconn_loop* loop);
/* Does what is there, without waiting. Returns how many handlers ran, or -1 with errno: a handler
 * that is written in C++ threw, and aeconn_error() says what; the loop goes on. Inside a handler of
 * this loop it serves descriptors and other connections, but no timers and posts: for a host that
 * turns its loop while something takes long. */
int aeconn_dispatch(aeconn_loop* loop);
/* Where the host has a hook before its sleep: writes out what was written outside handlers, and
 * says whether the host may sleep on the descriptor (1) or has to dispatch at once (0). A host
 * without such a hook needs no call. */
int aeconn_prepare(aeconn_loop* loop);
/* In place of a host: goes on until aeconn_stop(). 0, or -1 as aeconn_dispatch(), and EDEADLK
 * inside a handler of this loop. */
int aeconn_run(aeconn_loop* loop);
void aeconn_stop(aeconn_loop* loop);
/* One iteration of that, which waits for something to happen where `wait` is not 0; how many
 * handlers ran. -1 as aeconn_run(). */
int aeconn_turn(aeconn_loop* loop, int wait);
/* Any thread: runs `fn` on the loop's. 0, or -1 with errno ENOMEM. A loop that is freed runs what
 * waits before it goes. */
int aeconn_post(aeconn_loop* loop, void (*fn)(void* context), void* context);

/* Returns the delay until the next call; less than 0: no further one. */
typedef int64_t (*aeconn_timer_fn)(void* context);
/* Calls `fn` not earlier than `delay` from now. An id, never 0; 0 with errno ENOMEM. */
uint64_t aeconn_timer_start(aeconn_loop* loop, int64_t delay, aeconn_timer_fn fn, void* context);
/* To `delay` from now; -1 with errno ENOENT if it is over. */
int aeconn_timer_again(aeconn_loop* loop, uint64_t timer, int64_t delay);
int aeconn_timer_cancel(aeconn_loop* loop, uint64_t timer);

/* A descriptor of your own beside the connections; `ready` is AECONN_READABLE or _WRITABLE. Setting
 * replaces; remove before closing it. 0, or -1 with errno and a sentence. */
typedef void (*aeconn_file_fn)(void* context, int fd, int ready);
int aeconn_watch(aeconn_loop* loop, int fd, int directions, aeconn_file_fn fn, void* context);
void aeconn_unwatch(aeconn_loop* loop, int fd, int directions);

/* Counters of one transport on this loop, or of the loop itself (scheme NULL). */
int aeconn_statistics(aeconn_loop* loop, const char* scheme, aeconn_fact_fn fn, void* context);
/* The counters of all transports on this loop, in the text format of Prometheus (version 0.0.4). */
int aeconn_metrics(aeconn_loop* loop, aeconn_text_fn fn, void* context);

/* --- several loops --------------------------------------------------------------------------- */

/* Loops on threads of their own, which run from the beginning: 0 is one for each processor that the
 * process may use. The threads are called "NAME-INDEX" ("loop", if it is NULL); with `pin` each
 * keeps to a processor. NULL with errno and a sentence. */
aeconn_group* aeconn_group_new(size_t loops, const char* name, int pin);
/* Ends all loops, with what is on them, and waits for that. Not on a thread of the group (nothing
 * happens there). */
void aeconn_group_free(aeconn_group* group);
size_t aeconn_group_size(const aeconn_group* group);
/* Any thread: runs `fn` on the thread of loop `index`, whose handle it gets: valid as long as the
 * loop, never to be freed, for calls on that thread. 0, or -1 with errno ENOMEM, or EINVAL where
 * there is no such loop. What comes after the loop's end does not run. */
typedef void (*aeconn_loop_fn)(void* context, aeconn_loop* loop);
int aeconn_group_post(aeconn_group* group, size_t index, aeconn_loop_fn fn, void* context);
/* Any thread: the loops end after their iteration. */
void aeconn_group_stop(aeconn_group* group);
/* Returns when all loops have ended. -1 with errno and a sentence: a handler that is written in C++
 * threw; EINVAL on a thread of the group. */
int aeconn_group_wait(aeconn_group* group);

/* Which loop of a group gets a connection. */
enum aeconn_spread {
  AECONN_FEWEST,      /* the one that has the fewest */
  AECONN_ROUND_ROBIN, /* each in turn */
  AECONN_KERNEL       /* the kernel's hash (SO_REUSEPORT); tcp, and tls over it */
};
/* Gets a connection on the thread of its loop, where it stays. */
typedef void (*aeconn_group_accept_fn)(void* context, aeconn_loop* loop, aeconn_conn* conn);
/* One port for all loops. Returns when it listens; `accepted` is called on several threads at once.
 * Any thread but the group's. Free the listener before the group. */
aeconn_listener* aeconn_group_listen(aeconn_group* group, const char* url,
                                     enum aeconn_spread spread, aeconn_group_accept_fn accepted,
                                     void* context);
/* How many connections of such a listener loop `index` has, and how many it was ever given; either
 * may be NULL. 0, or -1 with errno EINVAL. */
int aeconn_listener_share(const aeconn_listener* listener, size_t index, uint64_t* open,
                          uint64_t* assigned);
/* As aeconn_metrics(), summed over the loops; waits for them, so not on one of their threads. */
int aeconn_group_metrics(aeconn_group* group, aeconn_text_fn fn, void* context);

/* --- listening ------------------------------------------------------------------------------- */

/* Gets each connection once it is ready for data; it is the handler's, who closes it. */
typedef void (*aeconn_accept_fn)(void* context, aeconn_conn* conn);
aeconn_listener* aeconn_listen(aeconn_loop* loop, const char* url, aeconn_accept_fn accepted,
                               void* context);
/* A socket that listens already (LISTEN_FDS); `options` as behind a URL's '?', or NULL. It is the
 * listener's from now on. */
aeconn_listener* aeconn_listen_on(aeconn_loop* loop, const char* scheme, int fd,
                                  const char* options, aeconn_accept_fn accepted, void* context);
/* Stops listening. Allowed inside its accept handler. */
void aeconn_listener_free(aeconn_listener* listener);
/* Where it listens, with the port that the kernel chose for port 0: one URL for each address. NULL
 * beyond the last; valid as long as the listener. */
const char* aeconn_listener_url(const aeconn_listener* listener, size_t index);
/* Leaves arrivals in the backlog, until it is resumed. */
void aeconn_listener_pause(aeconn_listener* listener);
void aeconn_listener_resume(aeconn_listener* listener);
/* Of a list of schemes: those that could not be had when listening began, each with why. */
void aeconn_listener_not_served(const aeconn_listener* listener, aeconn_fact_fn fn, void* context);
/* Told of arrivals that became no connection, in a sentence. */
typedef void (*aeconn_refused_fn)(void* context, const char* why);
void aeconn_listener_on_refused(aeconn_listener* listener, aeconn_refused_fn fn, void* context);

/* --- connections ----------------------------------------------------------------------------- */

/* Of events: gets the context it was set with, and the connection. */
typedef void (*aeconn_conn_fn)(void* context, aeconn_conn* conn);
/* Returns at once; `done` runs exactly once, from the loop, unless the connection is closed before:
 * aeconn_get_state() is AECONN_CONNECTED or AECONN_FAILED then. NULL: the URL is wrong. Where a
 * file that it names is, the connection fails, with EINVAL. */
aeconn_conn* aeconn_connect(aeconn_loop* loop, const char* url, aeconn_conn_fn done, void* context);
/* Waits. NULL with errno and a sentence where it failed. */
aeconn_conn* aeconn_connect_wait(aeconn_loop* loop, const char* url, int64_t timeout);
/* A connected socket of your own: "tcp" or "unix". It is the connection's from now on. */
aeconn_conn* aeconn_adopt(aeconn_loop* loop, const char* scheme, int fd);
/* Gives it up, as delete: no handler runs any more. What write took is still delivered, within a
 * bounded time that never blocks the loop. */
void aeconn_close(aeconn_conn* conn);
/* As aeconn_close(), but cuts the stream: nothing more is delivered, and the peer is to see an
 * error (ECONNRESET, where the transport can tell) instead of a clean end of stream. */
void aeconn_abort(aeconn_conn* conn);
/* The peer gets what was written, then end of stream. AECONN_WRITABLE: reading goes on (EOPNOTSUPP
 * over rdma); AECONN_READABLE | AECONN_WRITABLE: both directions end. 0, or -1 with errno. */
int aeconn_shutdown(aeconn_conn* conn, int directions);

/* NULL removes a handler. 0, or -1 with errno ENOMEM. */
int aeconn_on_readable(aeconn_conn* conn, aeconn_conn_fn fn, void* context);
int aeconn_on_writable(aeconn_conn* conn, aeconn_conn_fn fn, void* context);
/* Runs once, when it is known that the peer has closed or the connection has failed; nobody need
 * read for that. */
int aeconn_on_closed(aeconn_conn* conn, aeconn_conn_fn fn, void* context);

/* --- data ------------------------------------------------------------------------------------ */

/* As read(2), write(2), readv(2) and writev(2), without their limits on count and size. */
ssize_t aeconn_read(aeconn_conn* conn, void* buffer, size_t size);
ssize_t aeconn_write(aeconn_conn* conn, const void* buffer, size_t size);
ssize_t aeconn_readv(aeconn_conn* conn, const struct iovec* vectors, int count);
ssize_t aeconn_writev(aeconn_conn* conn, const struct iovec* vectors, int count);
/* Hands what was written to the kernel or device now, rather than at the end of the iteration. */
void aeconn_flush(aeconn_conn* conn);

/* What aeconn_read() would give next, where it lies: in one piece or two. */
typedef struct aeconn_view {
  struct iovec pieces[2]; /* where they lie */
  int count;              /* of pieces */
  int stable;             /* 0: the peer can still change the bytes (rdma with in-place=yes) */
  int last;               /* 1: nothing comes after them */
  size_t size;            /* of all pieces */
} aeconn_view;
/* As aeconn_read(): the size, 0 at end of stream, -1 with errno. The first piece has `together`
 * bytes (65536 at most), or all there are; then the read handler waits for more. They stay until
 * the next read, peek or consume of this connection, or its end. */
ssize_t aeconn_peek(aeconn_conn* conn, size_t together, aeconn_view* view);
/* The first `size` bytes that were shown have been read. */
void aeconn_consume(aeconn_conn* conn, size_t size);
/* Room for `size` bytes (65536 at most) of what is written next, `*room` of them; NULL with errno.
 * Until aeconn_commit(), which says how many were written there, nothing else can be written. */
void* aeconn_reserve(aeconn_conn* conn, size_t size, size_t* room);
void aeconn_commit(aeconn_conn* conn, size_t size);
/* Bytes that are sent from where they lie. */
typedef struct aeconn_outgoing {
  const void* bytes;           /* what is sent */
  size_t size;                 /* of them */
  const aeconn_memory* memory; /* registered around them, or NULL */
  /* The bytes and this struct are yours again; `error` is 0, or why they were not handed on. */
  void (*release)(struct aeconn_outgoing* outgoing, int error);
  void* context; /* yours */
} aeconn_outgoing;
/* As aeconn_write(), all or none. The bytes and the struct stay the library's until `release` runs:
 * once, from the loop, or when the connection or loop ends; never inside this call. */
ssize_t aeconn_send(aeconn_conn* conn, aeconn_outgoing* outgoing);
/* Memory that RDMA devices read without a copy; for other transports it costs nothing. `bytes` must
 * outlive it, and it the release of all that was sent from it. */
aeconn_memory* aeconn_memory_register(aeconn_loop* loop, const char* scheme, void* bytes,
                                      size_t size);
void aeconn_memory_free(aeconn_memory* memory);

/* Waiting here; handlers do not run meanwhile. */
/* 0: aeconn_read() or _write() would not say EAGAIN; -1 with errno ETIMEDOUT. */
int aeconn_wait(aeconn_conn* conn, int direction, int64_t timeout);
/* All of it: `size`; reading, fewer at end of stream; -1 with errno. Writing NULL, 0 bytes, waits
 * until the kernel or device has taken what was written before. */
ssize_t aeconn_read_all(aeconn_conn* conn, void* buffer, size_t size, int64_t timeout);
ssize_t aeconn_write_all(aeconn_conn* conn, const void* buffer, size_t size, int64_t timeout);
/* Up to a newline, without it and a carriage return before it, ended by NUL: its length; -1 with
 * errno: EMSGSIZE it does not fit, ECONNRESET the stream ended first. */
ssize_t aeconn_read_line(aeconn_conn* conn, char* buffer, size_t size, int64_t timeout);

/* --- facts ----------------------------------------------------------------------------------- */

/* AECONN_FAILED: aeconn_last_error() says why. */
enum aeconn_state aeconn_get_state(const aeconn_conn* conn);
/* Why it failed, in words, "" if it did not; valid as long as the connection. */
const char* aeconn_last_error(const aeconn_conn* conn);
/* The same as errno: ECONNREFUSED, ETIMEDOUT; EIO for what no errno explains; 0 if it did not. */
int aeconn_last_errno(const aeconn_conn* conn);
/* "tls+rdma" */
const char* aeconn_transport(const aeconn_conn* conn);
/* A descriptor of the connection's own, or -1 (rdma): to look at, not to poll. */
int aeconn_fd(const aeconn_conn* conn);
/* As snprintf(3): the length there is, of which what fits is written and ended by NUL. `*port` (may
 * be NULL) is 0 for a path, which is the host then. */
size_t aeconn_local(const aeconn_conn* conn, char* host, size_t size, uint16_t* port);
size_t aeconn_peer(const aeconn_conn* conn, char* host, size_t size, uint16_t* port);
/* 1: the peer is on this host; 0: it is not; -1: that cannot be known. */
int aeconn_is_local(const aeconn_conn* conn);
/* The peer's certificate as PEM; "" where there is none. As aeconn_local(). */
size_t aeconn_peer_certificate(const aeconn_conn* conn, char* pem, size_t size);
/* The name that option peer-user takes from its certificate; "" where there is none. */
size_t aeconn_peer_user(const aeconn_conn* conn, char* user, size_t size);
/* What carries the bytes, in one line for people: "tcp 10.0.0.2:50400 > 10.0.0.1:6379"; "" before
 * the connection has stood. As aeconn_local(). */
size_t aeconn_path(const aeconn_conn* conn, char* line, size_t size);
/* Details of the transport, for people: calls `fn` for each. */
void aeconn_info(const aeconn_conn* conn, aeconn_fact_fn fn, void* context);
uint64_t aeconn_id(const aeconn_conn* conn); /* unique in the process */
uint64_t aeconn_bytes_read(const aeconn_conn* conn);
uint64_t aeconn_bytes_written(const aeconn_conn* conn);
/* A pointer of yours; NULL at first. */
void* aeconn_user_data(const aeconn_conn* conn);
void aeconn_set_user_data(aeconn_conn* conn, void* data);

/* To another loop, in two steps: on the old loop's thread, then on the new one's. Between them only
 * aeconn_close() may be called. Not over rdma (EOPNOTSUPP). 0, or -1 with errno: EBUSY inside its
 * own handler, EAGAIN while what was sent in place waits. */
int aeconn_leave(aeconn_conn* conn);
int aeconn_join(aeconn_conn* conn, aeconn_loop* loop);

/* --- a connection that comes back ------------------------------------------------------------ */

/* Keeps one connection to a place, through flaps of its link and restarts of its server. Nothing is
 * sent twice by it: what was written to a connection that was lost is the program's. */

enum aeconn_redial_phase {
  AECONN_REDIAL_WAITING,  /* a pause before the next attempt */
  AECONN_REDIAL_IN_LINE,  /* as many as may connect at once do */
  AECONN_REDIAL_DIALLING, /* a connection is being made */
  AECONN_REDIAL_PROVING,  /* it stands, and `prove` is under way */
  AECONN_REDIAL_UP,       /* aeconn_redial_connection() is there */
  AECONN_REDIAL_STOPPED   /* aeconn_redial_stop() was called */
};
/* How a connection went; valid during the call. */
typedef struct aeconn_redial_loss {
  const char* why; /* one sentence */
  int error;       /* the same as errno, as aeconn_last_errno() */
  int moved;       /* 1: the preferred scheme works again, and comes next */
  /* Bytes written and not confirmed: they may have been done, or not, or in part. */
  uint64_t unconfirmed;
} aeconn_redial_loss;
/* All run from the loop; each may call any function of the redial, freeing it included. NULL: none.
 * The connection is the redial's: do not close it, aeconn_redial_drop() does, nor set its
 * aeconn_on_closed(). */
typedef struct aeconn_redial_handlers {
  /* A connection is there, and proven. */
  void (*up)(void* context, aeconn_redial* redial, aeconn_conn* conn);
  /* It is gone. What came before can still be read here; afterwards it is closed. */
  void (*down)(void* context, aeconn_redial* redial, aeconn_conn* conn,
               const aeconn_redial_loss* loss);
  /* Sends a request and awaits its answer, before `up`; then aeconn_redial_proved(). */
  void (*prove)(void* context, aeconn_redial* redial, aeconn_conn* conn);
  /* The phase or the last failure has changed. */
  void (*changed)(void* context, aeconn_redial* redial);
} aeconn_redial_handlers;
/* Times; set them to what aeconn_redial_defaults() gives, and then what is to be different. */
typedef struct aeconn_redial_settings {
  int64_t first_pause;  /* after a loss or a failure */
  int64_t most_pause;   /* as it doubles */
  int64_t attempt;      /* for one attempt, where the URL has no connect-timeout */
  int64_t proof;        /* for `prove` */
  int64_t stable;       /* one that stood for so long was a success */
  int64_t prefer_again; /* how often the preferred scheme of a list is tried again; 0: never */
} aeconn_redial_settings;
void aeconn_redial_defaults(aeconn_redial_settings* settings);
/* Begins at once. The handlers are copied; settings NULL are the defaults. NULL with errno and a
 * sentence for a URL that is wrong; files that it names are read by each attempt. Free it before
 * its loop. */
aeconn_redial* aeconn_redial_new(aeconn_loop* loop, const char* url,
                                 const aeconn_redial_handlers* handlers,
                                 const aeconn_redial_settings* settings, void* context);
/* Closes the connection, which delivers what was written. No handler runs any more. */
void aeconn_redial_free(aeconn_redial* redial);
enum aeconn_redial_phase aeconn_redial_get_phase(const aeconn_redial* redial);
/* NULL unless it is up. */
aeconn_conn* aeconn_redial_connection(const aeconn_redial* redial);
/* Whether the request of `prove` was answered (1) or the connection is no good (0). Only the first
 * call for a connection counts. */
void aeconn_redial_proved(aeconn_redial* redial, int answered);
/* "up", "waiting 120 ms after: connect to ...". As aeconn_local(). */
size_t aeconn_redial_describe(const aeconn_redial* redial, char* line, size_t size);
/* Of the connection that stands: the schemes that were preferred to its own, each with why not. */
void aeconn_redial_not_taken(const aeconn_redial* redial, aeconn_fact_fn fn, void* context);
/* The peer has answered for this many more bytes of what was written since `up`. */
void aeconn_redial_confirm(aeconn_redial* redial, uint64_t bytes);
uint64_t aeconn_redial_unconfirmed(const aeconn_redial* redial);
/* Gives up the connection there is, or the attempt, and begins again after a pause. */
int aeconn_redial_drop(aeconn_redial* redial, const char* why);
/* Ends a pause, and tries the preferred scheme at once where another carries the connection. */
int aeconn_redial_try_now(aeconn_redial* redial);
/* Closes everything; `down` does not run. */
void aeconn_redial_stop(aeconn_redial* redial);
/* Counters since it began: calls `fn` for each. */
void aeconn_redial_statistics(const aeconn_redial* redial, aeconn_fact_fn fn, void* context);

#ifdef __cplusplus
}
#endif

#endif
