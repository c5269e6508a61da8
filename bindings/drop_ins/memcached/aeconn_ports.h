/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports of memcached that aeconn serves: each `-o aeconn=URL` is one, over any transport.
 *
 * Loops of aeconn, on threads of their own, accept the connections. Each connection becomes a
 * descriptor (aeconn_to_fd()), which memcached serves like one that it has accepted itself: its
 * workers need no change, nor do its other threads, which take descriptors of clients over (watch,
 * lru_crawler metadump).
 *
 * aeconn.patch includes this header at the end of memcached.h, and calls the functions. They belong
 * to the main thread except where it says otherwise. */

#ifndef AECONN_PORTS_H
#define AECONN_PORTS_H

/* Adds a URL to listen on. False after a sentence that says why not. */
bool aeconn_ports_add(const char* url);
/* The limit on descriptors that the process needs: RLIMIT_NOFILE. */
size_t aeconn_ports_descriptors(void);
/* Whether all URLs can be listened on; false after a sentence that says why not. Listens for a
 * moment in a child process. To be called before memcached leaves the terminal and before it starts
 * threads. */
bool aeconn_ports_try(void);
/* Starts the loops and listens. False after a sentence that says why not; nothing listens then. */
bool aeconn_ports_open(void);
/* Ends listening. No connection is accepted after it returns; those that exist go on. */
void aeconn_ports_close(void);
/* Ends the loops with all connections. What memcached has written and the peers accept is sent;
 * with `drain` this waits for peers that still read what a closed connection has left to send. */
void aeconn_ports_end(bool drain);
/* Reads the certificates and keys of all URLs again, for new connections. If they are invalid, a
 * sentence says so, and the old ones stay. */
void aeconn_ports_reload(void);

/* Whether the limit on connections is reached, so that the next one is to be refused; `fd` is the
 * descriptor of one that memcached has accepted itself. Main thread. */
bool aeconn_ports_full(int fd);
/* A connection is on its way to a worker. Thread-safe. */
void aeconn_ports_dispatched(void);
/* A worker has got it: it is in curr_conns, or has failed. Any worker; holds STATS_LOCK(). */
void aeconn_ports_settled(void);

/* As getpeername(2) and getsockname(2), but for a connection of aeconn the addresses of the client
 * and of the server: those of IP, or the path of a Unix socket, as much of it as fits. Any
 * thread. */
int aeconn_ports_peer(int fd, struct sockaddr* address, socklen_t* size);
int aeconn_ports_local(int fd, struct sockaddr* address, socklen_t* size);

/* Adds what "stats settings" tells of each URL, and all of "stats aeconn". Any worker. */
void aeconn_ports_settings(ADD_STAT add_stats, void* cookie);
void aeconn_ports_stats(ADD_STAT add_stats, void* cookie);

#endif
