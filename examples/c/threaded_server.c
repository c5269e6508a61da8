/* SPDX-License-Identifier: BSD-3-Clause */
/* A server with worker threads of its own, as a cache has them: docs/c-threads.md explains it. Each
 * worker polls the descriptor of its loop beside one of its own. A client sends lines:
 *
 *   stats     the connections and bytes of each worker
 *   close N   closes the client with the number N, whichever worker has it
 *   watch     from now on, a thread of its own writes to the client
 *   quit      exit(3) on the worker, while the others run
 *   leave     main() returns while the workers run
 *   others    come back
 *
 * SIGINT and SIGTERM end it when each client has its answers, after ten seconds at the latest. */
#define _GNU_SOURCE
#include <aeconn.h>
#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { WORKERS = 3, CLIENTS = 64, LINE = 512, OUTPUT = 64 * 1024, URLS = 4 };

/* A client belongs to its worker: only `worker` and `id` are read by others, under the lock. */
struct client {
  struct worker* worker; /* NULL: the number is free */
  uint64_t id;           /* aeconn_id(): a number is used again, an id never */
  aeconn_conn* conn;
  char line[LINE], *output;
  size_t in_line, written, to_write;
};
struct worker {
  pthread_t thread;
  aeconn_loop* loop;
  int ended;   /* an eventfd: the program's own descriptor beside the loop's */
  size_t busy; /* clients that it has: for choose(), under the lock */
};

static struct worker workers[WORKERS];
static struct client clients[CLIENTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the numbers, and of `busy` */
static aeconn_group* group;
static aeconn_loop* control; /* of main(): it waits for signals */
static atomic_int stopping;  /* set when the stop begins; also read by threads that outlive it */

/* --- clients ---------------------------------------------------------------------------------- */

static void forget(struct client* client) {
  free(client->output);
  client->output = NULL;
  client->written = client->to_write = 0;
  pthread_mutex_lock(&lock);
  --client->worker->busy;
  client->worker = NULL;
  pthread_mutex_unlock(&lock);
}
static void close_client(struct client* client) {
  aeconn_close(client->conn);
  forget(client);
}

static void on_readable(void* context, aeconn_conn* conn);
static void on_writable(void* context, aeconn_conn* conn);

static void write_out(struct client* client) {
  while (client->written < client->to_write) {
    const ssize_t n = aeconn_write(client->conn, client->output + client->written,
                                   client->to_write - client->written);
    if (n < 0 && errno == EAGAIN) {
      aeconn_on_writable(client->conn, on_writable, client);
      return;
    }
    if (n < 0) break; /* on_readable() learns why, and closes */
    client->written += (size_t)n;
  }
  client->written = client->to_write = 0;
  aeconn_on_writable(client->conn, NULL, NULL);
}

static void on_writable(void* context, aeconn_conn* conn) {
  struct client* client = context;
  write_out(client);
  if (stopping && client->to_write == 0) on_readable(client, conn);
}

/* Sends text; a client that does not read its replies loses what is beyond OUTPUT bytes. */
static void say(struct client* client, const char* text, size_t size) {
  if (client->output == NULL) client->output = malloc(OUTPUT);
  if (client->output == NULL || size > OUTPUT - client->to_write) return;
  memcpy(client->output + client->to_write, text, size);
  client->to_write += size;
  write_out(client);
}

/* --- from any thread: closing a client, statistics -------------------------------------------- */

struct wish {
  size_t number;
  struct worker* worker;
  uint64_t id;
};

/* Runs on the worker's thread. The client may have gone, and another one have its number. */
static void close_wished(void* context) {
  struct wish* wish = context;
  struct client* client = &clients[wish->number];
  pthread_mutex_lock(&lock);
  const int there = client->worker == wish->worker && client->id == wish->id;
  pthread_mutex_unlock(&lock);
  if (there) close_client(client); /* nobody else ends it, once it is this worker's */
  free(wish);
}

static void close_by_number(size_t number) {
  struct wish* wish = malloc(sizeof *wish);
  int posted = -1;
  if (wish == NULL) return;
  pthread_mutex_lock(&lock);
  if (clients[number].worker != NULL) {
    *wish = (struct wish){number, clients[number].worker, clients[number].id};
    posted = aeconn_post(wish->worker->loop, close_wished, wish);
  }
  pthread_mutex_unlock(&lock);
  if (posted != 0) free(wish);
}

static void say_fact(void* context, const char* name, const char* value) {
  char text[LINE];
  const int size = snprintf(text, sizeof text, "%s %s\n", name, value);
  say(context, text, (size_t)size);
}

static void say_statistics(struct client* client) {
  for (size_t i = 0; i < aeconn_group_size(group); ++i) {
    say(client, "worker\n", 7);
    aeconn_group_statistics(group, i, aeconn_transport(client->conn), say_fact, client);
  }
  say(client, "end\n", 4);
}

/* --- a thread beside the workers, which writes to a client ------------------------------------ */

static void* watch(void* context) {
  const int fd = (int)(intptr_t)context;
  while (!stopping && send(fd, "tick\n", 5, MSG_NOSIGNAL) == 5) usleep(10 * 1000);
  close(fd); /* closes the connection */
  return NULL;
}

static void begin_watch(struct client* client) {
  pthread_t thread;
  const int fd = aeconn_to_fd(client->conn, NULL, NULL);
  if (fd < 0) {
    close_client(client);
    return;
  }
  forget(client); /* the descriptor has the connection now */
  if (pthread_create(&thread, NULL, watch, (void*)(intptr_t)fd) != 0)
    close(fd);
  else
    pthread_detach(thread);
}

/* --- lines ------------------------------------------------------------------------------------ */

static void leave(void* loop) { aeconn_stop(loop); }

/* Returns 0 if the client has gone. */
static int obey(struct client* client, char* line, size_t size) {
  size_t number = 0;
  if (strcmp(line, "quit\n") == 0) exit(0);
  if (strcmp(line, "leave\n") == 0) return aeconn_post(control, leave, control), 1;
  if (strcmp(line, "watch\n") == 0) return begin_watch(client), 0;
  if (strcmp(line, "stats\n") == 0) return say_statistics(client), 1;
  if (sscanf(line, "close %zu", &number) == 1 && number < CLIENTS)
    return close_by_number(number), 1;
  return say(client, line, size), 1;
}

static void on_readable(void* context, aeconn_conn* conn) {
  struct client* client = context;
  char* end;
  const ssize_t n = aeconn_read(conn, client->line + client->in_line, LINE - 1 - client->in_line);
  if (n < 0 && errno == EAGAIN) { /* all that came is answered */
    if (stopping && client->in_line == 0 && client->to_write == 0) close_client(client);
    return;
  }
  if (n <= 0) { /* end of stream, an error, or a line that is too long */
    close_client(client);
    return;
  }
  client->in_line += (size_t)n;
  while ((end = memchr(client->line, '\n', client->in_line)) != NULL) {
    char line[LINE];
    const size_t size = (size_t)(end - client->line) + 1;
    memcpy(line, client->line, size);
    line[size] = '\0';
    memmove(client->line, end + 1, client->in_line -= size);
    if (!obey(client, line, size)) return;
  }
  if (stopping) aeconn_on_writable(conn, on_writable, client); /* then: is there more? */
}

/* Returns the worker with the fewest clients. Runs on a thread of the group, before the connection
 * is set up. */
static size_t choose(void* context, const char* peer, const uint64_t* connections, size_t loops) {
  size_t best = 0;
  (void)context, (void)peer, (void)connections;
  pthread_mutex_lock(&lock);
  for (size_t i = 1; i < loops; ++i)
    if (workers[i].busy < workers[best].busy) best = i;
  pthread_mutex_unlock(&lock);
  return best;
}

/* Runs on the worker's thread. */
static void on_accepted(void* context, aeconn_loop* loop, aeconn_conn* conn) {
  char greeting[LINE];
  size_t number = 0;
  struct worker* worker = &workers[aeconn_group_index(group, loop)];
  struct client* client;
  (void)context;
  pthread_mutex_lock(&lock);
  while (number < CLIENTS && clients[number].worker != NULL) ++number;
  if (number < CLIENTS) {
    clients[number].worker = worker;
    clients[number].id = aeconn_id(conn);
    ++worker->busy;
  }
  pthread_mutex_unlock(&lock);
  if (number == CLIENTS) {
    aeconn_write(conn, "too many clients\n", 17);
    aeconn_close(conn);
    return;
  }
  client = &clients[number];
  client->conn = conn;
  client->in_line = 0;
  say(client, greeting,
      (size_t)snprintf(greeting, sizeof greeting, "you are %zu at worker %zu\n", number,
                       aeconn_group_index(group, loop)));
  if (aeconn_on_readable(conn, on_readable, client) != 0)
    close_client(client);
  else if (stopping)
    aeconn_on_writable(conn, on_writable, client);
}

static int has(const struct worker* worker, const struct client* client) {
  pthread_mutex_lock(&lock);
  const int mine = client->worker == worker;
  pthread_mutex_unlock(&lock);
  return mine; /* and stays so on the worker's thread: nobody else ends it */
}

/* Runs on each worker's thread when the server stops: its clients end once they are answered. */
static void on_stop(void* context, aeconn_loop* loop) {
  const struct worker* worker = &workers[aeconn_group_index(group, loop)];
  (void)context;
  stopping = 1;
  for (size_t i = 0; i < CLIENTS; ++i)
    if (has(worker, &clients[i])) aeconn_on_writable(clients[i].conn, on_writable, &clients[i]);
}

/* --- threads ---------------------------------------------------------------------------------- */

static void* work(void* context) {
  struct worker* worker = context;
  struct pollfd entries[2] = {{aeconn_descriptor(worker->loop), POLLIN, 0},
                              {worker->ended, POLLIN, 0}};
  while (entries[1].revents == 0) {
    if (poll(entries, 2, -1) < 0 && errno != EINTR) break;
    if (aeconn_dispatch(worker->loop) < 0) break;
  }
  for (size_t i = 0; i < CLIENTS; ++i) /* what a worker still has, it closes itself */
    if (has(worker, &clients[i])) close_client(&clients[i]);
  /* Delivers what was written, for option end-linger, and answers what others ask of this loop. */
  aeconn_loop_free(worker->loop);
  return NULL;
}

/* Gives up the privileges of root, which only the reading of keys needs. */
static int become(const char* user) {
  const struct passwd* entry = getpwnam(user);
  return entry != NULL && setgroups(0, NULL) == 0 && setgid(entry->pw_gid) == 0 &&
                 setuid(entry->pw_uid) == 0
             ? 0
             : -1;
}

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, aeconn_error());
  return 1;
}

int main(int count, char** arguments) {
  const aeconn_stop_settings settings = {.begins = on_stop};
  aeconn_graceful_stop* stop;
  aeconn_loop* loops[WORKERS];
  sigset_t signals;
  int status, urls = count - 2;
  if (urls < 1 || urls > URLS) {
    fprintf(stderr, "usage: threaded_server USER URL... (USER - : stay who you are)\n");
    return 2;
  }
  for (int i = 0; i < urls; ++i)
    if (aeconn_prepare_url(arguments[i + 2]) != 0) return fail(arguments[i + 2]);
  if (strcmp(arguments[1], "-") != 0 && become(arguments[1]) != 0) {
    perror(arguments[1]);
    return 1;
  }
  sigemptyset(&signals); /* blocked before threads begin: the stop gets them */
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, NULL);

  for (size_t i = 0; i < WORKERS; ++i) {
    workers[i].loop = loops[i] = aeconn_loop_new();
    workers[i].ended = eventfd(0, EFD_CLOEXEC);
    if (loops[i] == NULL || workers[i].ended < 0) return fail("a worker");
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) return fail("a thread");
  }
  group = aeconn_group_of(loops, WORKERS);
  if (group == NULL) return fail("the group");
  control = aeconn_loop_new();
  stop = aeconn_graceful_stop_new(control, group, 10 * INT64_C(1000000000), &settings);
  if (stop == NULL) return fail("the stop");
  for (int i = 0; i < urls; ++i) {
    aeconn_listener* listener =
        aeconn_group_listen_by(group, arguments[i + 2], choose, on_accepted, NULL);
    if (listener == NULL) return fail(arguments[i + 2]);
    printf("%s\n", aeconn_listener_url(listener, 0));
    if (aeconn_graceful_stop_add(stop, listener) != 0) return fail(arguments[i + 2]);
  }
  fflush(stdout);

  aeconn_run(control);
  if (aeconn_graceful_stop_get_phase(stop) == AECONN_SERVING)
    return 0; /* "leave": the workers run until the process has gone */

  for (size_t i = 0; i < WORKERS; ++i) eventfd_write(workers[i].ended, 1);
  for (size_t i = 0; i < WORKERS; ++i) pthread_join(workers[i].thread, NULL);
  status = aeconn_graceful_stop_status(stop, NULL, NULL);
  aeconn_graceful_stop_free(stop);
  aeconn_group_free(group);
  aeconn_loop_free(control);
  for (size_t i = 0; i < WORKERS; ++i) close(workers[i].ended);
  return status;
}
