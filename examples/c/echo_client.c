/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends a line and prints the reply: echo-client tcp://127.0.0.1:7777 hello
 * The program polls the loop's descriptor, as a program with its own event loop would. */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <aeconn.h>

struct exchange {
  const char* line;
  size_t sent, got;
  int over, failed;
};

static void on_readable(void* context, aeconn_conn* conn) {
  struct exchange* its = context;
  char buffer[4096];
  ssize_t size = aeconn_read(conn, buffer, sizeof buffer);
  if (size < 0 && errno == EAGAIN) return;
  if (size <= 0) {
    fprintf(stderr, "echo-client: %s\n", size == 0 ? "the server closed" : aeconn_last_error(conn));
    its->over = its->failed = 1;
    return;
  }
  fwrite(buffer, 1, (size_t)size, stdout);
  its->got += (size_t)size;
  its->over = its->got == strlen(its->line);
}

static void on_writable(void* context, aeconn_conn* conn) {
  struct exchange* its = context;
  size_t left = strlen(its->line) - its->sent;
  ssize_t size = aeconn_write(conn, its->line + its->sent, left);
  if (size > 0) its->sent += (size_t)size;
  if (its->sent == strlen(its->line)) aeconn_on_writable(conn, NULL, NULL);
}

static void on_connected(void* context, aeconn_conn* conn) {
  struct exchange* its = context;
  if (aeconn_get_state(conn) != AECONN_CONNECTED) {
    fprintf(stderr, "echo-client: %s\n", aeconn_last_error(conn));
    its->over = its->failed = 1;
    return;
  }
  aeconn_on_readable(conn, on_readable, its);
  aeconn_on_writable(conn, on_writable, its);
}

/* Opens descriptors 0, 1 and 2 if they are closed, so that no socket gets their numbers. */
static void open_standard_streams(void) {
  int fd;
  while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) continue;
  if (fd >= 0) close(fd);
}

int main(int argc, char** argv) {
  struct exchange exchange = {argc > 2 ? argv[2] : "hello\n", 0, 0, 0, 0};
  aeconn_loop* loop;
  aeconn_conn* conn = NULL;
  struct pollfd entry;
  open_standard_streams();
  loop = aeconn_loop_new();
  if (argc < 2) {
    fprintf(stderr, "usage: echo-client URL [TEXT]\n");
    return 1;
  }
  conn = aeconn_connect(loop, argv[1], on_connected, &exchange);
  if (conn == NULL) {
    fprintf(stderr, "echo-client: %s\n", aeconn_error());
    exchange.over = exchange.failed = 1;
  }
  entry.fd = aeconn_descriptor(loop);
  entry.events = POLLIN;
  while (!exchange.over) {
    if (poll(&entry, 1, -1) < 0 && errno != EINTR) break;
    if (aeconn_dispatch(loop) < 0) break;
  }
  aeconn_close(conn);
  aeconn_loop_free(loop);
  if (fflush(stdout) != 0) {
    perror("echo-client: standard output");
    return 1;
  }
  return exchange.failed || !exchange.over;
}
