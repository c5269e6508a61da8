/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of aeconn_ports.h. aeconn.patch includes this file at the end of memcached.c, so
 * that it is compiled with memcached's own settings. */

#include <aeconn.h>
#include <sys/wait.h>

/* Time for peers to read what closed connections have left to send, when memcached stops. */
#define AECONN_DRAIN_SECONDS 10

/* The addresses of a connection. `peer` is as large as memcached's own field. */
struct aeconn_place {
  struct sockaddr_in6 peer;
  struct sockaddr_un local;
  socklen_t peer_size, local_size;
};

static struct {
  const char** urls;
  size_t count;
  /* `parts`: the main thread changes these pointers, workers use what they point to. */
  pthread_mutex_t parts;
  aeconn_group* group;         /* NULL before the beginning and after the end */
  aeconn_listener** listeners; /* NULL each after the end of listening */
  pthread_mutex_t arrivals;    /* of one loop at a time, so that none exceeds the limit */
  int on_their_way;            /* dispatched, but not in curr_conns yet; STATS_LOCK() */
  pthread_mutex_t lock;        /* never held while one waits for a loop */
  pthread_cond_t ended;
  size_t open; /* connections whose loops have not finished with them; `lock` */
  /* By descriptor. An entry is valid as long as the descriptor is one of aeconn; `lock`. */
  struct aeconn_place* places;
  size_t places_size;
} aeconn_ports = {.parts = PTHREAD_MUTEX_INITIALIZER,
                  .arrivals = PTHREAD_MUTEX_INITIALIZER,
                  .lock = PTHREAD_MUTEX_INITIALIZER,
                  .ended = PTHREAD_COND_INITIALIZER};

static bool aeconn_ports_fail(const char* what, const char* why) {
  fprintf(stderr, "aeconn: %s%s%s\n", what, *what ? ": " : "", why);
  return false;
}

bool aeconn_ports_add(const char* url) {
  const char** more;
  if (url == NULL || *url == '\0')
    return aeconn_ports_fail("-o aeconn",
                             "a URL is missing, such as -o aeconn=tcp://0.0.0.0:11211");
  more = realloc(aeconn_ports.urls, (aeconn_ports.count + 1) * sizeof *more);
  if (more == NULL) return aeconn_ports_fail(url, "out of memory");
  aeconn_ports.urls = more;
  more[aeconn_ports.count] = strdup(url);
  if (more[aeconn_ports.count] == NULL) return aeconn_ports_fail(url, "out of memory");
  aeconn_ports.count++;
  return true;
}

/* A connection has its own descriptor and a pair of sockets; a loop some of its own, and over rdma
 * some for each device. */
size_t aeconn_ports_descriptors(void) {
  const size_t connections = (size_t)settings.maxconns;
  if (aeconn_ports.count == 0) return connections;
  return 3 * connections + 32 * (size_t)settings.num_threads + 8 * aeconn_ports.count + 64;
}

/* --- addresses ------------------------------------------------------------------------------- */

/* Makes an address of the text and the port that aeconn tells; returns its size. */
static socklen_t aeconn_ports_parse(const char* text, uint16_t port, void* address, size_t room) {
  const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
  struct sockaddr_un* const path = address;
  const size_t before = offsetof(struct sockaddr_un, sun_path);
  struct addrinfo* found = NULL;
  socklen_t size;
  size_t length;
  memset(address, 0, room);
  if (port != 0 && getaddrinfo(text, NULL, &hints, &found) == 0) {
    size = found->ai_addrlen;
    memcpy(address, found->ai_addr, size);
    freeaddrinfo(found);
    /* The place of the port is the same in both families. */
    ((struct sockaddr_in*)address)->sin_port = htons(port);
    return size;
  }
  length = strlen(text);
  if (length > room - before - 1) length = room - before - 1;
  path->sun_family = AF_UNIX;
  memcpy(path->sun_path, text, length);
  return (socklen_t)(before + length + 1);
}

static void aeconn_ports_place(const aeconn_conn* conn, struct aeconn_place* place) {
  char text[sizeof(struct sockaddr_un)];
  uint16_t port = 0;
  aeconn_peer(conn, text, sizeof text, &port);
  place->peer_size = aeconn_ports_parse(text, port, &place->peer, sizeof place->peer);
  aeconn_local(conn, text, sizeof text, &port);
  place->local_size = aeconn_ports_parse(text, port, &place->local, sizeof place->local);
}

/* Replaces an address by ours if it is that of a socketpair, the only socket here without a name.
 */
static int aeconn_ports_name(int fd, bool peer, struct sockaddr* address, socklen_t* size) {
  const struct aeconn_place* place;
  const socklen_t room = *size;
  int result = peer ? getpeername(fd, address, size) : getsockname(fd, address, size);
  if (result != 0 || address->sa_family != AF_UNIX || *size != sizeof address->sa_family)
    return result;
  pthread_mutex_lock(&aeconn_ports.lock);
  if ((size_t)fd < aeconn_ports.places_size) {
    place = &aeconn_ports.places[fd];
    *size = peer ? place->peer_size : place->local_size;
    memcpy(address, peer ? (const void*)&place->peer : &place->local, *size < room ? *size : room);
  }
  pthread_mutex_unlock(&aeconn_ports.lock);
  return 0;
}

int aeconn_ports_peer(int fd, struct sockaddr* address, socklen_t* size) {
  return aeconn_ports_name(fd, true, address, size);
}

int aeconn_ports_local(int fd, struct sockaddr* address, socklen_t* size) {
  return aeconn_ports_name(fd, false, address, size);
}

/* --- connections ----------------------------------------------------------------------------- */

/* As many connections as memcached would serve alone: `reserved_fds` are its own descriptors. */
static bool aeconn_ports_no_room(void) {
  int taken;
  STATS_LOCK();
  taken = (int)(stats_state.curr_conns + stats_state.reserved_fds) + aeconn_ports.on_their_way;
  STATS_UNLOCK();
  return taken >= settings.maxconns - 1;
}

bool aeconn_ports_full(int fd) {
  /* memcached's own rule; with connections of aeconn its descriptors have larger numbers. */
  if (aeconn_ports.count == 0) return fd >= settings.maxconns - 1;
  return aeconn_ports_no_room();
}

void aeconn_ports_dispatched(void) {
  if (aeconn_ports.count == 0) return;
  STATS_LOCK();
  aeconn_ports.on_their_way++;
  STATS_UNLOCK();
}

void aeconn_ports_settled(void) {
  if (aeconn_ports.count != 0) aeconn_ports.on_their_way--;
}

static void aeconn_ports_ended(void* context, int error, const char* why) {
  (void)context;
  if (error != 0 && settings.verbose > 0) aeconn_ports_fail("a connection was cut", why);
  pthread_mutex_lock(&aeconn_ports.lock);
  if (--aeconn_ports.open == 0) pthread_cond_signal(&aeconn_ports.ended);
  pthread_mutex_unlock(&aeconn_ports.lock);
}

static void aeconn_ports_refused(void* context, const char* why) {
  (void)context;
  if (settings.verbose > 0) aeconn_ports_fail("a connection was refused", why);
}

static void aeconn_ports_reject(aeconn_conn* conn, const char* sentence) {
  STATS_LOCK();
  stats.rejected_conns++;
  STATS_UNLOCK();
  (void)!aeconn_write(conn, sentence, strlen(sentence));
  aeconn_close(conn);
}

/* Makes a descriptor of the connection for a worker, with `arrivals` locked. */
static void aeconn_ports_hand_over(aeconn_conn* conn) {
  struct aeconn_place place;
  int fd;
  if (aeconn_ports_no_room()) {
    aeconn_ports_reject(conn, "ERROR Too many open connections\r\n"); /* memcached's sentence */
    return;
  }
  aeconn_ports_place(conn, &place);
  fd = aeconn_to_fd(conn, aeconn_ports_ended, NULL);
  if (fd < 0) {
    if (settings.verbose > 0) aeconn_ports_fail("a connection was refused", aeconn_error());
    aeconn_ports_reject(conn, "SERVER_ERROR out of descriptors\r\n");
    return;
  }
  pthread_mutex_lock(&aeconn_ports.lock);
  aeconn_ports.open++;
  if ((size_t)fd < aeconn_ports.places_size) aeconn_ports.places[fd] = place;
  pthread_mutex_unlock(&aeconn_ports.lock);
  if (fd >= max_fds) { /* only in aeconn_ports_try() */
    close(fd);
    return;
  }
  (void)fcntl(fd, F_SETFL, O_NONBLOCK);
  dispatch_conn_new(fd, conn_new_cmd, EV_READ | EV_PERSIST, READ_BUFFER_CACHED, tcp_transport, NULL,
                    0, settings.binding_protocol);
}

/* On the thread of the connection's loop. */
static void aeconn_ports_accepted(void* context, aeconn_loop* loop, aeconn_conn* conn) {
  (void)context, (void)loop;
  pthread_mutex_lock(&aeconn_ports.arrivals);
  aeconn_ports_hand_over(conn);
  pthread_mutex_unlock(&aeconn_ports.arrivals);
}

/* --- beginning and end ----------------------------------------------------------------------- */

static void aeconn_ports_not_served(void* context, const char* scheme, const char* why) {
  (void)context;
  aeconn_ports_fail(scheme, why);
}

bool aeconn_ports_open(void) {
  size_t i;
  if (aeconn_ports.count == 0) return true;
  if (!settings.maxconns_fast)
    return aeconn_ports_fail("-o aeconn", "it does not work with -o no_maxconns_fast");
  aeconn_ports.places_size = (size_t)max_fds;
  aeconn_ports.places = calloc(aeconn_ports.places_size + 1, sizeof *aeconn_ports.places);
  aeconn_ports.listeners = calloc(aeconn_ports.count, sizeof(aeconn_listener*));
  if (aeconn_ports.places == NULL || aeconn_ports.listeners == NULL)
    return aeconn_ports_fail("", "out of memory");
  aeconn_ports.group = aeconn_group_new((size_t)settings.num_threads, "mc-aeconn", 0);
  if (aeconn_ports.group == NULL) return aeconn_ports_fail("", aeconn_error());
  for (i = 0; i < aeconn_ports.count; i++) {
    aeconn_listener* const listener = aeconn_group_listen(
        aeconn_ports.group, aeconn_ports.urls[i], AECONN_FEWEST, aeconn_ports_accepted, NULL);
    if (listener == NULL) {
      aeconn_ports_fail("", aeconn_error());
      aeconn_ports_end(false);
      return false;
    }
    pthread_mutex_lock(&aeconn_ports.parts); /* clients of an earlier URL may ask for settings */
    aeconn_ports.listeners[i] = listener;
    pthread_mutex_unlock(&aeconn_ports.parts);
    aeconn_listener_on_refused(listener, aeconn_ports_refused, NULL);
    aeconn_listener_not_served(listener, aeconn_ports_not_served, NULL);
  }
  /* memcached counts its own listening sockets, too. */
  STATS_LOCK();
  stats_state.curr_conns += aeconn_ports.count;
  STATS_UNLOCK();
  return true;
}

bool aeconn_ports_try(void) {
  const struct sigaction usual = {.sa_handler = SIG_DFL};
  struct sigaction before;
  int status = 0;
  pid_t child;
  if (aeconn_ports.count == 0) return true;
  sigaction(SIGCHLD, &usual, &before); /* where it is ignored, waitpid() tells no status */
  child = fork();
  if (child < 0) return aeconn_ports_fail("fork", strerror(errno));
  if (child == 0) {
    status = aeconn_ports_open() ? 0 : 1;
    aeconn_ports_end(false);
    _exit(status);
  }
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  sigaction(SIGCHLD, &before, NULL);
  return status == 0;
}

void aeconn_ports_close(void) {
  size_t i;
  for (i = 0; aeconn_ports.group != NULL && i < aeconn_ports.count; i++) {
    aeconn_listener* listener;
    pthread_mutex_lock(&aeconn_ports.parts);
    listener = aeconn_ports.listeners[i];
    aeconn_ports.listeners[i] = NULL;
    pthread_mutex_unlock(&aeconn_ports.parts);
    aeconn_listener_free(listener); /* waits for aeconn_ports_accepted() */
  }
}

void aeconn_ports_end(bool drain) {
  struct timespec until;
  if (aeconn_ports.group == NULL) return;
  aeconn_ports_close();
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += AECONN_DRAIN_SECONDS;
  pthread_mutex_lock(&aeconn_ports.lock);
  while (drain && aeconn_ports.open != 0)
    drain = pthread_cond_timedwait(&aeconn_ports.ended, &aeconn_ports.lock, &until) == 0;
  pthread_mutex_unlock(&aeconn_ports.lock);
  pthread_mutex_lock(&aeconn_ports.parts);
  aeconn_group_free(aeconn_ports.group);
  aeconn_ports.group = NULL;
  pthread_mutex_unlock(&aeconn_ports.parts);
}

void aeconn_ports_reload(void) {
  if (aeconn_reload_tls() != 0)
    aeconn_ports_fail("certificates are not read again", aeconn_error());
}

/* --- statistics ------------------------------------------------------------------------------ */

static void aeconn_ports_stat(ADD_STAT add_stats, void* cookie, const char* name,
                              const char* value) {
  add_stats(name, (uint16_t)strlen(name), value, (uint32_t)strlen(value), cookie);
}

void aeconn_ports_settings(ADD_STAT add_stats, void* cookie) {
  const char* url;
  size_t i, j;
  pthread_mutex_lock(&aeconn_ports.parts);
  for (i = 0; aeconn_ports.group != NULL && i < aeconn_ports.count; i++) {
    for (j = 0; (url = aeconn_listener_url(aeconn_ports.listeners[i], j)) != NULL; j++)
      aeconn_ports_stat(add_stats, cookie, "aeconn", url);
  }
  pthread_mutex_unlock(&aeconn_ports.parts);
}

struct aeconn_ports_cookie {
  ADD_STAT add_stats;
  void* cookie;
};

/* The text has lines `NAME{LABELS} VALUE`, comments, and parts of histograms. */
static void aeconn_ports_metrics(void* context, const char* text, size_t size) {
  const struct aeconn_ports_cookie* const to = context;
  char *const all = strndup(text, size), *next = all, *line, *value;
  while (next != NULL && (line = strsep(&next, "\n")) != NULL) {
    if (*line == '#' || strstr(line, "_bucket{") != NULL || (value = strchr(line, ' ')) == NULL)
      continue;
    *value = '\0';
    aeconn_ports_stat(to->add_stats, to->cookie, line, value + 1);
  }
  free(all);
}

void aeconn_ports_stats(ADD_STAT add_stats, void* cookie) {
  struct aeconn_ports_cookie to = {add_stats, cookie};
  pthread_mutex_lock(&aeconn_ports.parts);
  aeconn_group_metrics(aeconn_ports.group, aeconn_ports_metrics, &to); /* none: does nothing */
  pthread_mutex_unlock(&aeconn_ports.parts);
}
