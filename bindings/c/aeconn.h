/* SPDX-License-Identifier: BSD-3-Clause */
/* The C interface of aeconn: an event loop with one descriptor, and connections over any transport.
 *
 * Conventions:
 *   - A URL says where and how to connect, and may carry options: "rdma://10.0.0.1:6379",
 *     "tls://0.0.0.0:6380?cert=c.pem&key=k.pem". docs/options.md lists all of them.
 *   - Calls that move data behave like read(2) and write(2): they return a count, 0 at end of
 *     stream, or -1 with errno, EAGAIN for "not now". Calls that set something up return NULL or -1
 *     with errno, and a sentence from aeconn_error().
 *   - Durations are in nanoseconds. In calls that wait, a negative one means no limit.
 *   - Handlers run only from the loop, never from inside a call of yours. They may close,
 *     replace or remove anything, including what they were called for. They are level-triggered:
 *     called again while there is something to read or capacity to write.
 *
 * Threads: a loop and everything on it belongs to the thread that dispatches it. Functions that any
 * thread may call say so: aeconn_post(), and functions of a group, of its listeners and of a stop.
 * aeconn_error() is per thread. docs/c-threads.md is about servers with several threads.
 *
 * Ownership: what is returned by a function whose name ends in _new, or by aeconn_group_of,
 * _listen, _connect, _adopt or _register, belongs to the caller until _free or aeconn_close(). Free
 * a loop last: what is on it ends with it, but its handles must still be freed or closed. How long
 * a text stays valid is described at each function.
 *
 * A NULL handle is an error in functions that can report one; other functions ignore it. */

#ifndef AECONN_H
#define AECONN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opaque handles. */
typedef struct aeconn_loop aeconn_loop;
typedef struct aeconn_listener aeconn_listener;
typedef struct aeconn_conn aeconn_conn;
typedef struct aeconn_memory aeconn_memory;
typedef struct aeconn_group aeconn_group;
typedef struct aeconn_redial aeconn_redial;

/* Directions. */
enum {
  AECONN_READABLE = 1, /* there is something to read, or the end of the stream */
  AECONN_WRITABLE = 2  /* writing is possible */
};

/* Connection state. Transitions are one-way. */
enum aeconn_state {
  AECONN_NEW,        /* not started */
  AECONN_CONNECTING, /* waiting for the result */
  AECONN_CONNECTED,  /* reads and writes work, also after the peer's half-close */
  AECONN_CLOSED,     /* both directions have ended */
  AECONN_FAILED      /* failed; see aeconn_last_error() */
};

/* --- the library ----------------------------------------------------------------------------- */

/* The version of the library, "0.3.0". */
const char* aeconn_version(void);
/* One sentence about this thread's last set-up call that failed; valid until the thread's next such
 * failure. Never NULL. */
const char* aeconn_error(void);
/* Returns 1 if this build has the transport; 0 if not, and aeconn_error() says why. Whether this
 * machine has the libraries and a device for rdma is known only when rdma is used, as an error of
 * aeconn_listen() or of the connection. */
int aeconn_has_transport(const char* scheme);
/* Sets default options for every URL of a transport, "cert=c.pem&key=k.pem", and replaces earlier
 * ones, for new connections of the whole process. For a transport of tls it may be called at any
 * time and on any thread, and also reads every file again that the URL of a listener names, even if
 * no option changes: so a program takes new certificates. For other transports, and lists with
 * them, call it before other threads use the transport. Returns 0, or -1 with errno and a sentence;
 * on failure nothing changes. */
int aeconn_configure(const char* scheme, const char* options);
/* Reads the files that a listener on this URL needs, such as keys, and keeps them: call it before
 * the process gives up its privileges, if it listens later. Listening with the same URL then opens
 * none of them; aeconn_configure() and reload=auto do. What was read counts as if a listener used
 * it, until the process ends: once the files cannot be read any more, each aeconn_configure() of
 * the transport fails, even if nothing listens on the URL; and statistic certificates_end counts
 * the certificates in them. Returns 0, or -1 with errno and a sentence. */
int aeconn_prepare_url(const char* url);
/* Checks the URL and all its options as aeconn_connect() does, and reads the files that connections
 * to it need; over tls these are, without option ca, the certificates that the system trusts, whose
 * reading takes tens of milliseconds. Opens nothing on the network. Use it to check a
 * configuration, and before a loop runs that must not wait for files. What was read is kept until
 * the process ends. aeconn_configure() and aeconn_reload_tls() read it again, reload=auto the files
 * that are named: once these cannot be read any more, the calls fail. Returns 0, or -1 with errno
 * and a sentence. Thread-safe. */
int aeconn_prepare_client_url(const char* url);
/* Reads the files of all transports of tls again, those of aeconn_configure() and those that URLs
 * of listeners name; call it when certificates were renewed. The options stay. New connections use
 * the new files. A transport that cannot use them keeps what it has; the result is then -1 with
 * errno, and the sentence of the first of these. Otherwise returns 0. Thread-safe. */
int aeconn_reload_tls(void);

/* Called once with a NUL-terminated text of `size` bytes, which is valid during the call. */
typedef void (*aeconn_text_fn)(void* context, const char* text, size_t size);
/* Receives a name and a value, valid during the call. */
typedef void (*aeconn_fact_fn)(void* context, const char* name, const char* value);

/* `fn` is called when a connection to a list of schemes ("rdma|tcp://...") was established with a
 * scheme other than the first, with the URL without its options and why the others were skipped. It
 * runs on the thread of the connection's loop, possibly on several threads at once, and must not
 * close connections. NULL removes it. Set it before connections are made. */
int aeconn_on_fallback(aeconn_fact_fn fn, void* context);

/* While a call of this thread waits (aeconn_wait() and the calls next to it,
 * aeconn_connect_wait()), it calls `fn` after each signal handler that ran: on 0 it continues to
 * wait, on any other value it ends with errno EINTR. This lets a host serve its own signals, such
 * as an interpreter's Ctrl-C. Without `fn` (NULL, the default) signals do not end a call. Data that
 * an interrupted call had already read is lost, as after a time-out. */
void aeconn_on_signal(int (*fn)(void* context), void* context);

/* --- the loop -------------------------------------------------------------------------------- */

/* Creates a loop. Returns NULL with errno and a sentence if the kernel gives no descriptor. */
aeconn_loop* aeconn_loop_new(void);
/* Must not be called from inside a handler, nor while another thread is inside a call of the loop.
 * May be called on any thread once the thread that dispatched the loop has ended or will not use it
 * again. */
void aeconn_loop_free(aeconn_loop* loop);
/* Descriptor of the loop, readable (POLLIN) exactly while aeconn_dispatch() has something to do.
 * Poll it level-triggered in your own event loop. It belongs to the loop: do not read or close it.
 * -1 with errno if the kernel gives none. */
int aeconn_descriptor(aeconn_loop* loop);
/* Processes what is pending, without waiting. Returns the number of handlers run, or -1 with errno
 * if a handler written in C++ threw (aeconn_error() has the text); the loop remains usable. Inside
 * a handler of this loop it serves file events and other connections but no timers and no posts:
 * for a host that runs its loop during a long operation. */
int aeconn_dispatch(aeconn_loop* loop);
/* To be called in a child of fork() for a loop that was run by the thread that called fork(): gives
 * the loop descriptors of its own, so that the child can continue to use it. Afterwards poll
 * aeconn_descriptor() anew. Without this call aeconn_descriptor(), aeconn_dispatch() and
 * aeconn_prepare() fail in the child with ECHILD; aeconn_run() and aeconn_turn() do this
 * themselves. What was made on the loop before still belongs to the parent: docs/c.md. Returns 0,
 * or -1 with errno. */
int aeconn_after_fork(aeconn_loop* loop);
/* For hosts whose own functions are expensive to call from C, such as interpreters: they set
 * aeconn_note() as a connection's handler, which only stores its context, and handle the contexts
 * that aeconn_collect() returns. */
/* A handler (aeconn_conn_fn). Stores nothing unless aeconn_collect() runs it. */
void aeconn_note(void* context, aeconn_conn* conn);
/* Does what aeconn_dispatch() does, then writes the contexts that aeconn_note() stored meanwhile,
 * in order, at most `count`, and returns their number. If there are more, the next calls return
 * them without dispatching, and the descriptor need not be readable then: after `count` contexts,
 * call again. A context may belong to a connection that was closed meanwhile. Returns -1 like
 * aeconn_dispatch(), but not before all contexts that were stored before the exception. */
ssize_t aeconn_collect(aeconn_loop* loop, void** contexts, size_t count);
/* For a host with a hook before it sleeps: sends what was written outside handlers. Returns 1 if
 * the host may sleep on the descriptor, 0 if it must dispatch at once. Hosts without such a hook do
 * not need this call. */
int aeconn_prepare(aeconn_loop* loop);
/* Runs the loop without a host until aeconn_stop(). Returns 0, or -1 as aeconn_dispatch(), with
 * EDEADLK inside a handler of this loop. */
int aeconn_run(aeconn_loop* loop);
void aeconn_stop(aeconn_loop* loop);
/* Runs one iteration, which waits for events if `wait` is not 0. Returns the number of handlers
 * run, or -1 as aeconn_run(). */
int aeconn_turn(aeconn_loop* loop, int wait);
/* Runs `fn` on the loop's thread. May be called from any thread. Returns 0, or -1 with errno
 * ENOMEM. When a loop is freed, it runs its pending posts first. */
int aeconn_post(aeconn_loop* loop, void (*fn)(void* context), void* context);

/* Returns the delay until the next call; negative: no further call. */
typedef int64_t (*aeconn_timer_fn)(void* context);
/* Calls `fn` not earlier than `delay` from now. Returns an id, never 0; 0 with errno ENOMEM. */
uint64_t aeconn_timer_start(aeconn_loop* loop, int64_t delay, aeconn_timer_fn fn, void* context);
/* Reschedules to `delay` from now; -1 with errno ENOENT if the timer has ended. */
int aeconn_timer_again(aeconn_loop* loop, uint64_t timer, int64_t delay);
int aeconn_timer_cancel(aeconn_loop* loop, uint64_t timer);

/* Watches a descriptor of your own; `ready` is AECONN_READABLE or _WRITABLE. Setting a handler
 * again replaces it; remove it before you close the descriptor. 0, or -1 with errno and a
 * sentence. */
typedef void (*aeconn_file_fn)(void* context, int fd, int ready);
int aeconn_watch(aeconn_loop* loop, int fd, int directions, aeconn_file_fn fn, void* context);
void aeconn_unwatch(aeconn_loop* loop, int fd, int directions);

/* Counters of one transport on this loop, or of the loop itself if scheme is NULL. A list,
 * "rdma|tcp", counts its fallbacks; a connection is counted by the transport that carries it. */
int aeconn_statistics(aeconn_loop* loop, const char* scheme, aeconn_fact_fn fn, void* context);
/* Counters of all transports on this loop in the Prometheus text format (version 0.0.4). */
int aeconn_metrics(aeconn_loop* loop, aeconn_text_fn fn, void* context);

/* --- several loops --------------------------------------------------------------------------- */

/* A group is loops that share ports. Its functions, and those of its listeners, may be called from
 * any thread unless they say otherwise. */

/* Starts loops on threads of their own; 0 means one for each processor that the process may use.
 * Threads are named "NAME-INDEX" ("loop" if name is NULL); with `pin` each is bound to a processor.
 * NULL with errno and a sentence. */
aeconn_group* aeconn_group_new(size_t loops, const char* name, int pin);
/* Makes a group of at least one loop. The loops are run by threads of the program ("workers"), and
 * may run already. Free the group's listeners first (aeconn_listener_free()), then the group,
 * before or after its loops. */
aeconn_group* aeconn_group_of(aeconn_loop* const* loops, size_t count);
/* Ends the loops that aeconn_group_new() started, with everything on them, and waits until they
 * have ended; on a thread of the group it does nothing. Loops of aeconn_group_of() remain the
 * program's. */
void aeconn_group_free(aeconn_group* group);
size_t aeconn_group_size(const aeconn_group* group);
/* Returns the number of a loop in its group, for a handler that knows only the loop; (size_t)-1 if
 * the loop is not in the group. */
size_t aeconn_group_index(const aeconn_group* group, const aeconn_loop* loop);
/* Runs `fn` on the thread of loop `index` with that loop's handle, which is valid as long as the
 * loop, must not be freed, and is for calls on that thread. May be called from any thread. Returns
 * 0, or -1 with errno ENOMEM, or EINVAL if there is no such loop. Posts after the loop's end do not
 * run. */
typedef void (*aeconn_loop_fn)(void* context, aeconn_loop* loop);
int aeconn_group_post(aeconn_group* group, size_t index, aeconn_loop_fn fn, void* context);
/* Makes each loop end after its current iteration. For a group of aeconn_group_of(), makes each
 * aeconn_run() return. */
void aeconn_group_stop(aeconn_group* group);
/* Returns when all loops have ended: 0, or -1 with errno and a sentence if a handler written in C++
 * threw. Fails with EINVAL on a thread of the group, and for a group of aeconn_group_of(): the
 * program itself joins those threads. */
int aeconn_group_wait(aeconn_group* group);

/* How connections are distributed over the loops of a group. */
enum aeconn_spread {
  AECONN_FEWEST,      /* the loop with the fewest connections */
  AECONN_ROUND_ROBIN, /* each loop in turn */
  AECONN_KERNEL       /* by the kernel's hash (SO_REUSEPORT); tcp, and tls over tcp */
};
/* Receives a connection on the thread of its loop, where it stays. */
typedef void (*aeconn_group_accept_fn)(void* context, aeconn_loop* loop, aeconn_conn* conn);
/* Listens on one port for all loops, which must run: it returns once it is listening, when each
 * loop has run an iteration. `accepted` may be called on several threads at once. Call it on any
 * thread except the group's. aeconn_listener_pause() and _resume() act at once on the calling
 * thread's loop, on the others in their next iteration. Free the listener before the group. */
aeconn_listener* aeconn_group_listen(aeconn_group* group, const char* url,
                                     enum aeconn_spread spread, aeconn_group_accept_fn accepted,
                                     void* context);
/* Chooses the loop of a pending connection: returns the loop's number. `connections` has, for each
 * loop, the number of its connections, including those that it will get; UINT64_MAX if the loop has
 * ended. A number that is too large, or that of a loop that has ended, leaves the choice to
 * AECONN_FEWEST. Runs on a thread of the group, one call at a time, and must not use loops,
 * listeners or connections. `peer` is valid during the call. */
typedef size_t (*aeconn_choose_fn)(void* context, const char* peer, const uint64_t* connections,
                                   size_t loops);
/* Like aeconn_group_listen(), but the program chooses the loop, for example by a queue of workers
 * that are free. A connection waits until the thread of its loop dispatches, however long that
 * takes. At most 128 connections wait for each loop; while 128 wait for one, further connections
 * stay in the backlog. */
aeconn_listener* aeconn_group_listen_by(aeconn_group* group, const char* url,
                                        aeconn_choose_fn choose, aeconn_group_accept_fn accepted,
                                        void* context);
/* For a listener of aeconn_group_listen(): how many connections loop `index` has open, and how many
 * it was ever assigned; either pointer may be NULL. 0, or -1 with errno EINVAL. */
int aeconn_listener_share(const aeconn_listener* listener, size_t index, uint64_t* open,
                          uint64_t* assigned);
/* Like aeconn_statistics() for loop `index`, and like aeconn_metrics() summed over the loops. Both
 * wait until each loop has answered between two handlers, and may also be called inside a handler,
 * on several threads at once. -1 with errno EINVAL and a sentence if a loop has ended.
 *
 * The thread of a loop is the last one that called aeconn_dispatch(), _collect(), _prepare(),
 * _run() or _turn() for it. A loop of the calling thread answers at once, also outside handlers;
 * another thread that begins to dispatch or free that loop waits meanwhile. For any other loop
 * these calls wait until a thread dispatches or frees it: for ever if no thread does, or if only
 * the calling thread would, for example before the first dispatch. So a thread that takes over a
 * loop from another thread must dispatch it once before it makes these calls. While the other
 * thread may still make these calls, the new thread must dispatch the loop before it does anything
 * else with it. */
int aeconn_group_statistics(aeconn_group* group, size_t index, const char* scheme,
                            aeconn_fact_fn fn, void* context);
int aeconn_group_metrics(aeconn_group* group, aeconn_text_fn fn, void* context);

/* --- listening ------------------------------------------------------------------------------- */

/* Receives each connection once it is ready for data. The handler owns it and must close it. */
typedef void (*aeconn_accept_fn)(void* context, aeconn_conn* conn);
aeconn_listener* aeconn_listen(aeconn_loop* loop, const char* url, aeconn_accept_fn accepted,
                               void* context);
/* Listens on a socket that is listening already (LISTEN_FDS); `options` as after '?' in a URL, or
 * NULL. The listener takes ownership of the socket; after a failure it is still the caller's. */
aeconn_listener* aeconn_listen_on(aeconn_loop* loop, const char* scheme, int fd,
                                  const char* options, aeconn_accept_fn accepted, void* context);
/* Stops listening. Allowed inside the listener's accept handler. For a listener of a group it waits
 * until each loop has run an iteration or was freed; then no handler of the listener runs any more.
 * On a worker, it ends the listener on that worker's loop and does not wait: on the other loops
 * handlers may run until their next iteration. */
void aeconn_listener_free(aeconn_listener* listener);
/* The addresses it listens on, one URL each, with the port chosen by the kernel for port 0. NULL
 * beyond the last, or without memory; valid as long as the listener. */
const char* aeconn_listener_url(const aeconn_listener* listener, size_t index);
/* Stops accepting until resumed; pending connections stay in the backlog. */
void aeconn_listener_pause(aeconn_listener* listener);
void aeconn_listener_resume(aeconn_listener* listener);
/* For a list of schemes: the ones not available when listening began, each with the reason. */
void aeconn_listener_not_served(const aeconn_listener* listener, aeconn_fact_fn fn, void* context);
/* Receives one sentence for each pending connection that did not become a connection; one, "TLS
 * files not read again, the old ones stay: ...", for each failure to read changed files
 * (reload=auto); and one when clients have to wait because descriptors or memory are missing, until
 * all were accepted. */
typedef void (*aeconn_refused_fn)(void* context, const char* why);
void aeconn_listener_on_refused(aeconn_listener* listener, aeconn_refused_fn fn, void* context);

/* --- a graceful stop ------------------------------------------------------------------------- */

/* Ends a server without losing a request. The stop begins at a signal or by
 * aeconn_graceful_stop_request(): the server accepts the connections that have arrived until then,
 * within a second, or half of the limit if that is less, and those of a paused listener not; then
 * it stops listening, and the program closes each client for which no answer is due any more. When
 * the last connection that a client opened has ended, with its output, the loops end. At a second
 * request, or when the limit has passed, the connections that are left are aborted: their
 * aeconn_last_errno() is ECANCELED. Requests within 100 ms, or before listening has ended, count as
 * one. A connection whose set-up (of TLS, RDMA or shared memory) is not complete when listening
 * ends is dropped and not counted. A server has one stop at a time. */
typedef struct aeconn_graceful_stop aeconn_graceful_stop;

/* How far the stop has come. Transitions are one-way. */
enum aeconn_stop_phase {
  AECONN_SERVING,  /* the stop has not begun */
  AECONN_DRAINING, /* what has arrived is accepted, then listening ends; clients are closed after
                    * their last answer */
  AECONN_ENDED     /* no client is left, or what was left has been aborted */
};
/* The settings of a stop, which it copies. If all members are zero, the defaults apply. */
typedef struct aeconn_stop_settings {
  /* The signals that begin the stop, and then 0. They are blocked on the calling thread, and on
   * those that it makes later, and delivered to the loop by signalfd(2); handlers set for them do
   * not run. Other threads must block them, too: those of aeconn_group_new() do. NULL: SIGINT and
   * SIGTERM. 0 alone: none, the program calls aeconn_graceful_stop_request(). */
  const int* signals;
  /* Runs once on the thread of each serving loop when the stop begins: it should end the clients
   * that wait for no answer. Clients that end later, and connections accepted later, can find that
   * the phase is not AECONN_SERVING any more. NULL: none. */
  aeconn_loop_fn begins;
  /* Runs on the controlling loop at the end, instead of ending the loops. NULL: aeconn_run() and
   * aeconn_group_wait() return. */
  aeconn_loop_fn ends;
  void* context; /* passed to `begins` and to `ends` */
} aeconn_stop_settings;
/* Creates a stop. If `group` is NULL, the server is on `loop` alone. If `loop` is NULL, the server
 * is on the loops of a group of aeconn_group_new(), the first of which controls the stop. If both
 * are given, the server is on the loops of `group`, of either kind, and `loop`, which must not be
 * one of them, controls the stop: at the end only `loop` ends, not the group. Call it on the thread
 * of `loop`, or while no thread runs it; with a group, on none of the group's threads, and if
 * `begins` is set, while the group's loops run. `limit` is how long clients may take to end: 0
 * aborts them at once, a negative value is no limit. `settings` may be NULL. NULL with errno and a
 * sentence on failure. */
aeconn_graceful_stop* aeconn_graceful_stop_new(aeconn_loop* loop, aeconn_group* group,
                                               int64_t limit, const aeconn_stop_settings* settings);
/* Ends the stop, whose functions do not run afterwards, and frees its listeners. If the stop has
 * begun, clients that are left live on, and another stop may follow. May also be called inside
 * `begins` and `ends` of a stop of one loop, and after loops have been freed; free the stop before
 * its group. With a group it does nothing on one of the group's threads; if `begins` is set, it
 * waits until each loop has run an iteration or was freed, and so also for handlers that are using
 * the stop; without `begins` it does not wait for them. On another thread than the one that
 * dispatched the controlling loop last, it waits in the same way for that loop. It does not wait on
 * the thread that made a stop with `loop`: no other thread may be running that loop then. Restores
 * the calling thread's signal mask, unless a signal has arrived: the program is then about to end,
 * and another signal must not kill it. In a child of fork(2) it only frees memory. */
void aeconn_graceful_stop_free(aeconn_graceful_stop* stop);
/* Takes ownership of a listener, which is freed soon after the stop begins, or at once if it has
 * begun; do not use it afterwards. A listener of a single loop must be passed on the loop's thread,
 * to the stop of that loop; a listener of the group may be passed on any thread. 0, or -1 with
 * errno: after ENOMEM the listener has been freed. */
int aeconn_graceful_stop_add(aeconn_graceful_stop* stop, aeconn_listener* listener);
/* Has the effect of a signal (see above). Any thread, but not in a signal handler. */
void aeconn_graceful_stop_request(aeconn_graceful_stop* stop);
/* Returns how far the stop has come; AECONN_SERVING for NULL. Thread-safe. */
enum aeconn_stop_phase aeconn_graceful_stop_get_phase(const aeconn_graceful_stop* stop);
/* Returns the exit status for main(): 0, or 1 if connections were aborted; -1 with errno EINVAL for
 * NULL. Stores how many connections were aborted, and how many bytes of their output had not left
 * this machine, as far as that is known (it is not over rdma and shm). Either pointer may be NULL.
 * Valid in phase AECONN_ENDED, on any thread. */
int aeconn_graceful_stop_status(const aeconn_graceful_stop* stop, uint64_t* connections,
                                uint64_t* bytes);

/* --- connections ----------------------------------------------------------------------------- */

/* Handler of an event: receives the context it was set with, and the connection. */
typedef void (*aeconn_conn_fn)(void* context, aeconn_conn* conn);
/* Returns at once, but the first connection of tls reads the files that it needs before, those of
 * the system for tens of milliseconds; aeconn_prepare_client_url() reads them in advance. `done`
 * runs exactly once, from the loop, unless the connection is closed before; aeconn_get_state() is
 * then AECONN_CONNECTED or AECONN_FAILED. NULL with errno and a sentence if the URL is invalid, if
 * memory is missing, or if its only scheme is rdma and this process cannot use RDMA at all (no
 * device or library: ENODEV; no access: EACCES); over tls+rdma and of lists, the connection fails
 * instead. If a file named in the URL is invalid, the connection fails with EINVAL; if the file
 * cannot be read, with the errno of that, such as ENOENT or EACCES. */
aeconn_conn* aeconn_connect(aeconn_loop* loop, const char* url, aeconn_conn_fn done, void* context);
/* Blocking variant. NULL with errno and a sentence on failure. */
aeconn_conn* aeconn_connect_wait(aeconn_loop* loop, const char* url, int64_t timeout);
/* Takes ownership of a connected socket; scheme "tcp", "unix" or "vsock". */
aeconn_conn* aeconn_adopt(aeconn_loop* loop, const char* scheme, int fd);
/* Closes gracefully and releases ownership. No further handlers run; do not use the handle
 * afterwards. Bytes already written are still delivered, within a bounded time that never blocks
 * the loop. */
void aeconn_close(aeconn_conn* conn);
/* As aeconn_close(), but aborts the stream: nothing more is delivered, and the peer should see an
 * error (ECONNRESET, if the transport supports it) instead of a clean end of stream. */
void aeconn_abort(aeconn_conn* conn);
/* The peer receives what was written, then end of stream. AECONN_WRITABLE: reading continues
 * (EOPNOTSUPP over rdma if the peer is not aeconn); AECONN_READABLE | AECONN_WRITABLE: both
 * directions end. 0, or -1 with errno. */
int aeconn_shutdown(aeconn_conn* conn, int directions);

/* NULL removes a handler. 0, or -1 with errno ENOMEM. */
int aeconn_on_readable(aeconn_conn* conn, aeconn_conn_fn fn, void* context);
int aeconn_on_writable(aeconn_conn* conn, aeconn_conn_fn fn, void* context);
/* Runs once, when the peer is known to have closed or the connection has failed; no read is needed
 * to detect this. aeconn_last_errno() is then the failure, if there is one and it is known already:
 * unread bytes may come before it. Set after the event, it runs in the next iteration. */
int aeconn_on_closed(aeconn_conn* conn, aeconn_conn_fn fn, void* context);
/* Like aeconn_on_closed(), but the handler runs only for a failure, including one that follows the
 * end of the peer's stream. A connection has one of the two handlers: setting one replaces the
 * other. */
int aeconn_on_failed(aeconn_conn* conn, aeconn_conn_fn fn, void* context);

/* --- data ------------------------------------------------------------------------------------ */

/* As read(2), write(2), readv(2) and writev(2), without their limits on count and size. ENOTCONN
 * before the connection is established. After a write that failed, for example with EPIPE because
 * the peer has closed, reading first returns the bytes that had arrived (with some transports also
 * the end of the stream), then fails once with the same errno, and with ENOTCONN afterwards. */
ssize_t aeconn_read(aeconn_conn* conn, void* buffer, size_t size);
ssize_t aeconn_write(aeconn_conn* conn, const void* buffer, size_t size);
ssize_t aeconn_readv(aeconn_conn* conn, const struct iovec* vectors, int count);
ssize_t aeconn_writev(aeconn_conn* conn, const struct iovec* vectors, int count);
/* Passes written bytes to the kernel or device now instead of at the end of the iteration. */
void aeconn_flush(aeconn_conn* conn);

/* The bytes that aeconn_read() would return next, not copied, in one or two pieces. */
typedef struct aeconn_view {
  struct iovec pieces[2]; /* location of the bytes */
  int count;              /* number of pieces */
  int stable;             /* 0: the peer can still change the bytes (rdma with in-place=yes) */
  int last;               /* 1: these are the last bytes of the stream */
  size_t size;            /* total size of the pieces */
} aeconn_view;
/* Returns a value like aeconn_read(): the size, 0 at end of stream, -1 with errno. The first piece
 * has at least `together` bytes (at most 65536), or all that have arrived; in the latter case the
 * read handler runs when more have arrived. The view is valid until the next read, peek or consume
 * of this connection, or its end. */
ssize_t aeconn_peek(aeconn_conn* conn, size_t together, aeconn_view* view);
/* Marks the first `size` bytes shown by aeconn_peek() as read. */
void aeconn_consume(aeconn_conn* conn, size_t size);
/* Returns a buffer for at least `size` bytes of output (at most 65536) and sets `*room` to its
 * size; NULL with errno. Until aeconn_commit() says how many bytes were written there, no other
 * write is possible. What is committed waits in the library, at most 256 KiB more than
 * aeconn_write() would take; aeconn_close() sends it within the time of `linger`, and the end of
 * the loop within that of `end-linger`. */
void* aeconn_reserve(aeconn_conn* conn, size_t size, size_t* room);
void aeconn_commit(aeconn_conn* conn, size_t size);
/* Bytes sent from the caller's memory. */
typedef struct aeconn_outgoing {
  const void* bytes;           /* the bytes */
  size_t size;                 /* number of bytes */
  const aeconn_memory* memory; /* registered memory around them, or NULL */
  /* Returns the bytes and this struct to the caller; `error` is 0 once they were handed on,
   * which does not mean delivered, else why they were not. */
  void (*release)(struct aeconn_outgoing* outgoing, int error);
  void* context; /* for the caller's use */
} aeconn_outgoing;
/* As aeconn_write(), but accepts all bytes or none. The bytes and the struct belong to the library
 * until `release` runs: once, from the loop or when the connection or loop ends; never inside this
 * call. */
ssize_t aeconn_send(aeconn_conn* conn, aeconn_outgoing* outgoing);
/* Registers memory that RDMA devices read without a copy; it costs nothing for other transports.
 * `bytes` must outlive the handle, which must outlive the release of everything sent from it. */
aeconn_memory* aeconn_memory_register(aeconn_loop* loop, const char* scheme, void* bytes,
                                      size_t size);
void aeconn_memory_free(aeconn_memory* memory);

/* Blocking calls; handlers do not run meanwhile. */
/* 0: aeconn_read() or _write() would not fail with EAGAIN; -1 with errno, such as ETIMEDOUT. */
int aeconn_wait(aeconn_conn* conn, int direction, int64_t timeout);
/* Transfers all bytes: returns `size`; when reading, fewer at end of stream; -1 with errno. Writing
 * 0 bytes from NULL waits until the kernel or device has taken what was written before. */
ssize_t aeconn_read_all(aeconn_conn* conn, void* buffer, size_t size, int64_t timeout);
ssize_t aeconn_write_all(aeconn_conn* conn, const void* buffer, size_t size, int64_t timeout);
/* Reads up to a newline, which is removed together with a preceding carriage return; the result is
 * NUL-terminated. Returns its length; -1 with errno: EMSGSIZE if it does not fit, ECONNRESET if the
 * stream ended first. */
ssize_t aeconn_read_line(aeconn_conn* conn, char* buffer, size_t size, int64_t timeout);

/* --- facts ----------------------------------------------------------------------------------- */

/* The current state. If it is AECONN_FAILED, see aeconn_last_error(). */
enum aeconn_state aeconn_get_state(const aeconn_conn* conn);
/* Why it failed, in words; "" if it did not. It may be a failure that aeconn_read() has not
 * reported yet, since bytes are unread. Valid until the next call on the connection. */
const char* aeconn_last_error(const aeconn_conn* conn);
/* The same as errno: ECONNREFUSED, ETIMEDOUT; EACCES if the peer's certificate was refused here,
 * EPROTO if the peer refused ours; EIO if no errno matches; 0 if it did not fail. */
int aeconn_last_errno(const aeconn_conn* conn);
/* Name of the transport, "tls+rdma". */
const char* aeconn_transport(const aeconn_conn* conn);
/* A descriptor of this connection alone, or -1 (rdma, shm). For inspection only; do not poll it. */
int aeconn_fd(const aeconn_conn* conn);
/* As snprintf(3): returns the full length and writes as much as fits, NUL-terminated. For a path,
 * `host` is the path and `*port` is 0; `port` may be NULL. The client of an accepted connection of
 * unix or shm has no path: aeconn_peer() then gives the path of the listener, and
 * aeconn_peer_sockaddr() gives an address that consists of the family alone. Behind a trusted proxy
 * both give the address of the client. */
size_t aeconn_local(const aeconn_conn* conn, char* host, size_t size, uint16_t* port);
size_t aeconn_peer(const aeconn_conn* conn, char* host, size_t size, uint16_t* port);
/* Store the addresses like getsockname(2) and getpeername(2), also over rdma, whose connections
 * have no sockets. Behind a trusted proxy (proxy-protocol) the peer is the client. `*size` is the
 * room at `address`; it becomes the size of the address, which is cut if there is less room. 0, or
 * -1 with errno: ENOTCONN if the address is unknown, for example after the end of a connection;
 * EINVAL. */
int aeconn_local_sockaddr(const aeconn_conn* conn, struct sockaddr* address, socklen_t* size);
int aeconn_peer_sockaddr(const aeconn_conn* conn, struct sockaddr* address, socklen_t* size);
/* 1: the peer is on this host; 0: it is not; -1: unknown. */
int aeconn_is_local(const aeconn_conn* conn);
/* The peer's certificate as PEM; "" if there is none. Copies as aeconn_local(). */
size_t aeconn_peer_certificate(const aeconn_conn* conn, char* pem, size_t size);
/* The user name that option peer-user takes from the certificate; "" if there is none. */
size_t aeconn_peer_user(const aeconn_conn* conn, char* user, size_t size);
/* Stores facts about the process at the other end of a Unix socket: its number (0: it is in another
 * PID namespace), effective user and group. Pointers may be NULL. 0; or -1 with errno EOPNOTSUPP:
 * they are known only for open connections of unix and shm, also below tls; EINVAL. */
int aeconn_peer_credentials(const aeconn_conn* conn, pid_t* pid, uid_t* uid, gid_t* gid);
/* One line that describes the path: "tcp 10.0.0.2:50400 > 10.0.0.1:6379"; "" before the connection
 * is established. Copies as aeconn_local(). */
size_t aeconn_path(const aeconn_conn* conn, char* line, size_t size);
/* Details of the transport, for display: calls `fn` for each. */
void aeconn_info(const aeconn_conn* conn, aeconn_fact_fn fn, void* context);
uint64_t aeconn_id(const aeconn_conn* conn); /* unique in the process */
uint64_t aeconn_bytes_read(const aeconn_conn* conn);
uint64_t aeconn_bytes_written(const aeconn_conn* conn);
/* A pointer for the caller's use; NULL initially. */
void* aeconn_user_data(const aeconn_conn* conn);
void aeconn_set_user_data(aeconn_conn* conn, void* data);

/* Moves the connection to another loop in two steps: call aeconn_leave() on the old loop's thread,
 * then aeconn_join() on the new one's. In between only aeconn_close() is allowed. Over rdma only
 * with resume=yes at both ends (else EOPNOTSUPP). 0, or -1 with errno: EBUSY inside the
 * connection's own handler, EAGAIN while data sent in place is pending, and in its release
 * function. */
int aeconn_leave(aeconn_conn* conn);
int aeconn_join(aeconn_conn* conn, aeconn_loop* loop);

/* Called once from the loop, when the connection of a descriptor has ended, just before the
 * descriptor shows it: `error` as aeconn_last_errno(), `why` one sentence. 0 and "" if both
 * directions ended or the descriptor was closed; ECANCELED if the loop was freed. Must not free the
 * loop. */
typedef void (*aeconn_ended_fn)(void* context, int error, const char* why);
/* Turns an established connection into a descriptor, for code that knows only read(2), write(2) and
 * poll(2): a stream socket that blocks and has close-on-exec set. Call it on the loop's thread; the
 * descriptor may be used on any thread. The caller owns the descriptor. From now on the loop owns
 * the connection and must keep running: do not use `conn` afterwards. Closing the descriptor closes
 * the connection. docs/adapters.md describes what each end sees when the other ends. `ended` may be
 * NULL: then the descriptor of a connection of tcp, unix or vsock is its own socket, if no bytes or
 * options need the loop, and it needs no running loop. -1 with errno and a sentence on failure,
 * such as EMFILE, or ENOTCONN if the state is not AECONN_CONNECTED; the caller then still owns
 * `conn`, after ENOMEM without handlers. */
int aeconn_to_fd(aeconn_conn* conn, aeconn_ended_fn ended, void* context);

/* --- a connection that is re-established ----------------------------------------------------- */

/* Keeps a client connected to one endpoint across link failures and server restarts. It never sends
 * anything twice: what was written to a lost connection is the program's responsibility. */

enum aeconn_redial_phase {
  AECONN_REDIAL_WAITING,  /* pausing before the next attempt */
  AECONN_REDIAL_IN_LINE,  /* waiting: the limit of simultaneous attempts is reached */
  AECONN_REDIAL_DIALLING, /* an attempt is in progress */
  AECONN_REDIAL_PROVING,  /* established, and `prove` is in progress */
  AECONN_REDIAL_UP,       /* aeconn_redial_connection() is usable */
  AECONN_REDIAL_STOPPED   /* aeconn_redial_stop() was called */
};
/* How a connection was lost; valid during the call. */
typedef struct aeconn_redial_loss {
  const char* why; /* one sentence */
  int error;       /* as aeconn_last_errno() */
  int moved;       /* 1: the preferred scheme works again, and is used next */
  /* Bytes written but not confirmed: processed fully, in part, or not at all. */
  uint64_t unconfirmed;
} aeconn_redial_loss;
/* The handlers of a redial. All run from the loop; each may call any function of the redial,
 * including aeconn_redial_free(). NULL: no handler. The redial owns the connection: do not close it
 * (use aeconn_redial_drop()) and do not set its aeconn_on_closed(). */
typedef struct aeconn_redial_handlers {
  /* A connection is established and proven. */
  void (*up)(void* context, aeconn_redial* redial, aeconn_conn* conn);
  /* The connection is lost. Data received before can still be read here; then it is closed. */
  void (*down)(void* context, aeconn_redial* redial, aeconn_conn* conn,
               const aeconn_redial_loss* loss);
  /* Before `up`: send a request, await its answer, then call aeconn_redial_proved(). */
  void (*prove)(void* context, aeconn_redial* redial, aeconn_conn* conn);
  /* The phase or the last failure has changed. */
  void (*changed)(void* context, aeconn_redial* redial);
} aeconn_redial_handlers;
/* Times. Initialize with aeconn_redial_defaults(), then change what should differ. */
typedef struct aeconn_redial_settings {
  int64_t first_pause;  /* pause after a loss or a failure */
  int64_t most_pause;   /* upper bound for the pause, which doubles each time */
  int64_t attempt;      /* time-out of one attempt, if the URL has no connect-timeout */
  int64_t proof;        /* time-out of `prove` */
  int64_t stable;       /* a connection that lasted this long counts as a success */
  int64_t prefer_again; /* interval of attempts with the preferred scheme of a list; 0: never */
} aeconn_redial_settings;
void aeconn_redial_defaults(aeconn_redial_settings* settings);
/* Starts at once. The handlers are copied; settings NULL means the defaults. NULL with errno and a
 * sentence if the URL is invalid; files named in it are read by each attempt. Free it before its
 * loop. */
aeconn_redial* aeconn_redial_new(aeconn_loop* loop, const char* url,
                                 const aeconn_redial_handlers* handlers,
                                 const aeconn_redial_settings* settings, void* context);
/* Closes the connection; bytes already written are still delivered. No further handlers run. */
void aeconn_redial_free(aeconn_redial* redial);
enum aeconn_redial_phase aeconn_redial_get_phase(const aeconn_redial* redial);
/* The connection; NULL unless it is up. */
aeconn_conn* aeconn_redial_connection(const aeconn_redial* redial);
/* Reports whether the request of `prove` was answered (1) or the connection is unusable (0). Only
 * the first call for a connection has an effect. */
void aeconn_redial_proved(aeconn_redial* redial, int answered);
/* Describes the phase: "up", "waiting 120 ms after: connect to ...". Copies as aeconn_local(). */
size_t aeconn_redial_describe(const aeconn_redial* redial, char* line, size_t size);
/* The schemes preferred to that of the current connection, each with why it was skipped. */
void aeconn_redial_not_taken(const aeconn_redial* redial, aeconn_fact_fn fn, void* context);
/* Confirms that the peer has answered for `bytes` more of what was written since `up`. */
void aeconn_redial_confirm(aeconn_redial* redial, uint64_t bytes);
uint64_t aeconn_redial_unconfirmed(const aeconn_redial* redial);
/* Drops the current connection or attempt, and starts again after a pause. */
int aeconn_redial_drop(aeconn_redial* redial, const char* why);
/* Ends a pause; if a less preferred scheme is in use, tries the preferred one at once. */
int aeconn_redial_try_now(aeconn_redial* redial);
/* Stops and closes everything; `down` does not run. */
void aeconn_redial_stop(aeconn_redial* redial);
/* Counters since the start: calls `fn` for each. */
void aeconn_redial_statistics(const aeconn_redial* redial, aeconn_fact_fn fn, void* context);

#ifdef __cplusplus
}
#endif

#endif
