// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Connections of every transport as asio streams, for asio itself, asio::ssl and Beast; with
// standalone asio, or Boost's if AECONN_BOOST_ASIO is defined. docs/adapters.md has programs.
//
//   adapters::asio::Stream stream(context);
//   co_await stream.async_connect(registry, loop, "rdma://10.0.0.1:7000", use_awaitable);
//   co_await asio::async_write(stream, asio::buffer("hello"), use_awaitable);
//
// Thread rule: streams, acceptors, their loop and their context belong to one thread, the one that
// runs the context. The loop must be attached to the context (adapters/asio_loop.h) and outlive
// everything made on it. Handlers run on their associated executors.
//
// A handler runs once, never inside the call that began its operation, and never inside a handler
// of the loop. An operation is cancelled by cancel(), by close(), by destruction of its stream and,
// since asio 1.19, by its cancellation slot (terminal, partial and total are equivalent here). Its
// handler then gets operation_aborted, and nothing was read or written. If the context ends first,
// the handler is destroyed without being run.

#include <sys/uio.h>

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "adapters/asio_loop.h"
#include "adapters/asio_operation.h"
#include "ae/abi.h"
#include "conn/registry.h"

#ifdef AECONN_BOOST_ASIO
namespace boost::beast {
enum class role_type;
}
#endif

namespace adapters { inline namespace AECONN_ABI { namespace asio {
inline namespace AECONN_ASIO_INLINE {
namespace detail {

/// Whether all buffers are empty.
template <class Buffers>
bool has_nothing(const Buffers& buffers) {
  const auto end = net::buffer_sequence_end(buffers);
  for (auto at = net::buffer_sequence_begin(buffers); at != end; ++at)
    if (net::const_buffer(*at).size() != 0) return false;
  return true;
}

/// Calls readv() or writev() once. Returns false if the operation must wait.
template <bool kReads, class Buffers>
bool transfer(conn::Connection& connection, const Buffers& buffers, Outcome& outcome) {
  std::array<iovec, 64> vectors;
  std::size_t count = 0;
  const auto end = net::buffer_sequence_end(buffers);
  for (auto at = net::buffer_sequence_begin(buffers); at != end && count < vectors.size(); ++at) {
    using Buffer = std::conditional_t<kReads, net::mutable_buffer, net::const_buffer>;
    const Buffer buffer(*at);
    if (buffer.size() == 0) continue;
    vectors[count++] = {const_cast<void*>(static_cast<const void*>(buffer.data())), buffer.size()};
  }
  const int pieces = static_cast<int>(count);
  const ssize_t done =
      kReads ? connection.readv(vectors.data(), pieces) : connection.writev(vectors.data(), pieces);
  if (done > 0) {
    outcome.size = static_cast<std::size_t>(done);
  } else if (done == 0) {
    if (kReads) outcome.error = net::error::eof;
  } else if (errno == EAGAIN) {
    return false;
  } else {
    outcome.error = from_errno(errno);
  }
  return true;
}

template <bool kReads, class Handler, class Buffers>
class Transfer final : public OperationOf<Transfer<kReads, Handler, Buffers>, Handler> {
 public:
  Transfer(Handler&& handler, const Executor& executor, const Buffers& buffers)
      : OperationOf<Transfer, Handler>(std::move(handler), executor), buffers_(buffers) {}
  bool attempt(conn::Connection& connection, Outcome& outcome) override {
    return transfer<kReads>(connection, buffers_, outcome);
  }
  static void deliver(const Executor& executor, Handler&& handler, const Outcome& outcome) {
    post(executor, std::move(handler), outcome.error, outcome.size);
  }

 private:
  Buffers buffers_;
};

template <class Handler>
class Connect final : public OperationOf<Connect<Handler>, Handler> {
 public:
  using OperationOf<Connect, Handler>::OperationOf;
  static void deliver(const Executor& executor, Handler&& handler, const Outcome& outcome) {
    post(executor, std::move(handler), outcome.error);
  }
};

class StreamState final : public Service::Member, public std::enable_shared_from_this<StreamState> {
 public:
  StreamState(const Executor& its, conn::ConnectionPtr connected)
      : Member(its), executor(its), connection(std::move(connected)) {}

  template <bool kReads, class Handler, class Buffers>
  void begin_transfer(Handler&& handler, const Buffers& buffers) {
    auto& queue = kReads ? reads_ : writes_;
    Outcome outcome;
    if (has_nothing(buffers)) {
      // Completes at once, even while another operation waits and on a closed stream, as with a
      // socket: asio::ssl ends its own operations with reads of zero bytes.
    } else if (connection == nullptr) {
      outcome.error = net::error::bad_descriptor;
    } else if (!queue.empty() || !transfer<kReads>(*connection, buffers, outcome)) {
      using Its = Transfer<kReads, std::decay_t<Handler>, Buffers>;
      auto* const operation = Its::make(std::move(handler), executor, buffers);
      try {
        wait(queue, operation);
        return kReads ? watch_reads() : watch_writes();
      } catch (...) {
        queue.take(operation->id)->discard();  // it has not begun, so it must leave the queue
        throw;
      }
    }
    post(executor, std::move(handler), outcome.error, outcome.size);
  }

  template <class Handler>
  void begin_connect(Handler&& handler, const conn::Registry& registry, ae::EventLoop& loop,
                     const std::string& url) {
    close();
    conn::Endpoint endpoint;
    try {
      endpoint = conn::Endpoint::parse(url);
      registry.require(endpoint.scheme).check(endpoint);
      connection = registry.create(loop, endpoint);
    } catch (const conn::Error& error) {
      why_not = error.what();
      const std::error_code& code = error.code();
      return post(executor, std::move(handler),
                  code ? from_std(code) : ErrorCode(net::error::invalid_argument));
    }
    try {
      wait(connects_, Connect<std::decay_t<Handler>>::make(std::move(handler), executor));
      connection->connect(endpoint, [this](conn::Connection&) { connected(); });
    } catch (...) {
      connects_.discard_all();  // the operation has not begun, so it must leave the queue
      throw;
    }
  }

  void cancel() {
    if (!connects_.empty()) connection.reset();
    connects_.abort_all();
    reads_.abort_all();
    writes_.abort_all();
  }
  void close() {
    connection.reset();
    why_not.clear();
    reading_ = writing_ = false;
    cancel();
  }
  void abort() {
    if (connection != nullptr) connection.release()->abort();
    close();
  }
  conn::ConnectionPtr release() {
    cancel();
    if (connection != nullptr) {
      connection->set_read_handler(nullptr);
      connection->set_write_handler(nullptr);
    }
    reading_ = writing_ = false;
    return std::move(connection);
  }
  void context_ends() noexcept override {
    // Keeps this object alive, because the operations may own it.
    const auto kept = weak_from_this().lock();
    connection.reset();
    connects_.discard_all();
    reads_.discard_all();
    writes_.discard_all();
  }

  const Executor executor;
  conn::ConnectionPtr connection;
  std::string why_not;

 private:
  template <class Its>
  void wait(Operations& queue, Its* operation) {
    operation->id = ++last_id_;
    queue.push(operation);
    set_cancel(operation->handler(), [self = weak_from_this(), id = operation->id] {
      // Keeps the state alive: the cancelled operation may hold the last reference to it.
      if (const auto state = self.lock()) state->cancel(id);
    });
  }
  void cancel(std::uint64_t id) {
    Operation* operation = reads_.take(id);
    if (operation == nullptr) operation = writes_.take(id);
    if (operation == nullptr) {
      operation = connects_.take(id);
      if (operation != nullptr) connection.reset();
    }
    if (operation != nullptr) operation->finish({net::error::operation_aborted, 0, nullptr});
  }

  void watch_reads() {
    if (reading_) return;
    connection->set_read_handler([this](conn::Connection&) { readable(); });  // may throw
    reading_ = true;
  }
  void watch_writes() {
    if (writing_) return;
    connection->set_write_handler([this](conn::Connection&) { writable(); });  // may throw
    writing_ = true;
  }
  // Removes the handler only if data has arrived and no read waits. Usually the next read begins
  // earlier, so the handler stays.
  void readable() {
    if (!reads_.empty()) return serve(reads_);
    reading_ = false;
    connection->set_read_handler(nullptr);
  }
  void writable() {
    serve(writes_);
    if (!writes_.empty()) return;
    writing_ = false;
    connection->set_write_handler(nullptr);
  }
  void serve(Operations& queue) {
    while (!queue.empty()) {
      Outcome outcome;
      if (!queue.first()->attempt(*connection, outcome)) return;
      queue.pop()->finish(std::move(outcome));
    }
  }
  void connected() {
    if (connects_.empty()) return;
    Outcome outcome;
    if (connection->state() != conn::State::kConnected)
      outcome.error = from_std(connection->error_code());
    connects_.pop()->finish(std::move(outcome));
  }

  Operations connects_, reads_, writes_;
  std::uint64_t last_id_ = 0;
  bool reading_ = false, writing_ = false;
};

/// Function object for async_initiate(); called with the handler and the operation's arguments.
template <class State, class Begin>
class Initiation {
 public:
  using executor_type = Executor;
  Initiation(std::shared_ptr<State> state, Begin begin)
      : state_(std::move(state)), begin_(std::move(begin)) {}
  /// The executor on which handlers run.
  executor_type get_executor() const noexcept { return state_->executor; }
  template <class Handler, class... Arguments>
  void operator()(Handler&& handler, const Arguments&... arguments) const {
    // A handler that is an lvalue is copied.
    std::decay_t<Handler> its(std::forward<Handler>(handler));
    begin_(*state_, std::move(its), arguments...);
  }

 private:
  std::shared_ptr<State> state_;
  Begin begin_;
};

}  // namespace detail

/// One connection, for code that takes an AsyncReadStream and AsyncWriteStream. Movable; a
/// moved-from stream can only be assigned to and destroyed. Any number of reads and writes may
/// wait; each kind is served in order. The destructor closes the connection and cancels its
/// operations.
class Stream {
 public:
  using executor_type = detail::Executor;  ///< any_io_executor
  using lowest_layer_type = Stream;        ///< the lowest layer is this class itself

  /// Creates a stream with an established connection, or with none for async_connect().
  explicit Stream(const executor_type& executor, conn::ConnectionPtr connection = nullptr)
      : state_(std::make_shared<detail::StreamState>(executor, std::move(connection))) {}
  /// Creates a stream like the other constructor, with the executor of `context`.
  template <class Context>
  requires std::is_convertible_v<Context&, detail::net::execution_context&>
  explicit Stream(Context& context) : Stream(context.get_executor()) {}
  Stream(Stream&&) noexcept = default;  ///< leaves the other stream without a connection
  /// Closes the connection that this stream had, and takes over that of `other`.
  Stream& operator=(Stream&& other) noexcept {
    if (this != &other) {
      if (state_ != nullptr) state_->close();
      state_ = std::move(other.state_);
    }
    return *this;
  }
  ~Stream() {
    if (state_ != nullptr) state_->close();
  }

  /// The executor on which handlers run.
  executor_type get_executor() const noexcept { return state_->executor; }
  lowest_layer_type& lowest_layer() noexcept { return *this; }              ///< returns this stream
  const lowest_layer_type& lowest_layer() const noexcept { return *this; }  ///< returns this stream

  /// Connects to `url` on `loop`; the handler's signature is void(error_code). The transport's
  /// connect-timeout applies. Closes the stream's previous connection. On failure last_error() has
  /// the sentence; the error is invalid_argument if the URL is invalid. The registry must outlive
  /// the connection, and the loop the operation.
  template <class Token>
  auto async_connect(const conn::Registry& registry, ae::EventLoop& loop, std::string url,
                     Token&& token) {
    return initiate<void(detail::ErrorCode)>(
        [&registry, &loop](auto& state, auto&& handler, const std::string& to) {
          state.begin_connect(std::move(handler), registry, loop, to);
        },
        std::forward<Token>(token), std::move(url));
  }
  /// Reads some bytes; the handler's signature is void(error_code, size_t), with eof at the end of
  /// the stream. Uses at most 64 buffers per call.
  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return initiate<void(detail::ErrorCode, std::size_t)>(
        [](auto& state, auto&& handler, const Buffers& into) {
          state.template begin_transfer<true>(std::move(handler), into);
        },
        std::forward<Token>(token), buffers);
  }
  /// Writes some bytes; the handler's signature is void(error_code, size_t). Uses at most 64
  /// buffers per call, with one writev().
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return initiate<void(detail::ErrorCode, std::size_t)>(
        [](auto& state, auto&& handler, const Buffers& from) {
          state.template begin_transfer<false>(std::move(handler), from);
        },
        std::forward<Token>(token), buffers);
  }

  /// Ends every waiting operation with operation_aborted. Cancelling a connect closes the
  /// connection.
  void cancel() { state_->cancel(); }
  /// Cancels all operations, and closes as Connection::close() does: what was written is still
  /// delivered.
  void close() { state_->close(); }
  /// Like close(), but with Connection::abort(): the peer sees an error instead of the end of the
  /// stream, as after closing a socket with a linger time of 0.
  void abort() { state_->abort(); }
  /// True from connect or accept until close() or a failure.
  bool is_open() const noexcept {
    return state_->connection != nullptr && state_->connection->state() == conn::State::kConnected;
  }
  /// Half-closes like Connection::shutdown(): the peer gets end of stream; reading continues. The
  /// error is operation_not_supported over rdma to a peer that is not aeconn.
  void shutdown(detail::ErrorCode& error) {
    error = {};
    if (state_->connection == nullptr)
      error = detail::net::error::bad_descriptor;
    else if (state_->connection->shutdown() != 0)
      error = detail::from_errno(errno);
  }
  /// The connection; null before connect and after close. The stream owns the connection's handlers
  /// and, while operations wait, its reads and writes. Its facts (peer_address(), info()) may be
  /// read at any time.
  conn::Connection* connection() const noexcept { return state_->connection.get(); }
  /// Why the connection failed, in one sentence; "" if it did not fail.
  const std::string& last_error() const noexcept {
    return state_->connection != nullptr ? state_->connection->last_error() : state_->why_not;
  }
  /// Cancels all operations, removes the handlers and transfers ownership of the connection to the
  /// caller.
  [[nodiscard]] conn::ConnectionPtr release() { return state_->release(); }

 private:
  template <class Signature, class Begin, class Token, class... Arguments>
  auto initiate(Begin begin, Token&& token, Arguments&&... arguments) {
    return detail::net::async_initiate<Token, Signature>(
        detail::Initiation<detail::StreamState, Begin>(state_, std::move(begin)), token,
        std::forward<Arguments>(arguments)...);
  }

  std::shared_ptr<detail::StreamState> state_;
};

namespace detail {

template <class Handler>
class Accept final : public OperationOf<Accept<Handler>, Handler> {
 public:
  using OperationOf<Accept, Handler>::OperationOf;
  static void deliver(const Executor& executor, Handler&& handler, Outcome& outcome) {
    post(executor, std::move(handler), outcome.error,
         Stream(executor, std::move(outcome.connection)));
  }
};

class AcceptorState final : public Service::Member,
                            public std::enable_shared_from_this<AcceptorState> {
 public:
  explicit AcceptorState(const Executor& its) : Member(its), executor(its) {}

  void listen(const conn::Registry& registry, ae::EventLoop& loop, std::string_view url) {
    listener = registry.listen(loop, url, [this](conn::ConnectionPtr connection) {
      if (!accepts_.empty()) return accepts_.pop()->finish({{}, 0, std::move(connection)});
      arrived_.push_back(std::move(connection));
      pause(true);
    });
  }
  template <class Handler>
  void begin_accept(Handler&& handler) {
    using Its = Accept<std::decay_t<Handler>>;
    auto* const operation = Its::make(std::move(handler), executor);
    if (listener == nullptr) return operation->finish({net::error::bad_descriptor, 0, nullptr});
    if (!arrived_.empty()) {
      Outcome outcome{{}, 0, std::move(arrived_.front())};
      arrived_.pop_front();
      return operation->finish(std::move(outcome));
    }
    operation->id = ++last_id_;
    accepts_.push(operation);
    try {
      set_cancel(operation->handler(), [self = weak_from_this(), id = operation->id] {
        const auto state = self.lock();
        Operation* const found = state != nullptr ? state->accepts_.take(id) : nullptr;
        if (found != nullptr) found->finish({net::error::operation_aborted, 0, nullptr});
      });
      pause(false);
    } catch (...) {
      accepts_.take(operation->id)->discard();  // it has not begun, so it must leave the queue
      throw;
    }
  }
  void cancel() { accepts_.abort_all(); }
  void close() {
    listener.reset();
    arrived_.clear();
    cancel();
  }
  void context_ends() noexcept override {
    const auto kept = weak_from_this().lock();
    listener.reset();
    arrived_.clear();
    accepts_.discard_all();
  }

  const Executor executor;
  conn::ListenerPtr listener;

 private:
  // While no accept waits, pending connections stay in the backlog.
  void pause(bool paused) {
    if (paused_ == paused) return;
    if (paused)
      listener->pause();
    else
      listener->resume();  // may throw
    paused_ = paused;
  }

  Operations accepts_;
  std::deque<conn::ConnectionPtr> arrived_;
  std::uint64_t last_id_ = 0;
  bool paused_ = false;
};

}  // namespace detail

/// Listens at one URL. Destroying it stops listening and cancels its operations. Movable, like
/// Stream.
class Acceptor {
 public:
  using executor_type = detail::Executor;  ///< any_io_executor

  /// Listens on `loop`. Throws conn::Error like Registry::listen(). The loop must outlive the
  /// acceptor, and the registry also the streams that it accepts.
  Acceptor(const executor_type& executor, const conn::Registry& registry, ae::EventLoop& loop,
           std::string_view url)
      : state_(std::make_shared<detail::AcceptorState>(executor)) {
    state_->listen(registry, loop, url);
  }
  Acceptor(Acceptor&&) noexcept = default;  ///< leaves the other acceptor without a listener
  /// Closes the listener that this acceptor had, and takes over that of `other`.
  Acceptor& operator=(Acceptor&& other) noexcept {
    if (this != &other) {
      if (state_ != nullptr) state_->close();
      state_ = std::move(other.state_);
    }
    return *this;
  }
  ~Acceptor() {
    if (state_ != nullptr) state_->close();
  }

  /// The executor on which handlers run.
  executor_type get_executor() const noexcept { return state_->executor; }
  /// Accepts a connection that is ready for data, after its handshakes; the handler's signature is
  /// void(error_code, Stream). The stream uses the acceptor's executor. Any number of accepts may
  /// wait.
  template <class Token>
  auto async_accept(Token&& token) {
    const auto begin = [](auto& state, auto&& handler) { state.begin_accept(std::move(handler)); };
    return detail::net::async_initiate<Token, void(detail::ErrorCode, Stream)>(
        detail::Initiation<detail::AcceptorState, decltype(begin)>(state_, begin), token);
  }
  void cancel() { state_->cancel(); }  ///< ends waiting accepts with operation_aborted
  void close() { state_->close(); }    ///< stops listening and cancels waiting accepts
  bool is_open() const noexcept { return state_->listener != nullptr; }  ///< whether it listens
  /// The endpoints on which it listens, with the port chosen for port 0; empty after close().
  std::vector<conn::Endpoint> endpoints() const {
    return is_open() ? state_->listener->endpoints() : std::vector<conn::Endpoint>();
  }

 private:
  std::shared_ptr<detail::AcceptorState> state_;
};

#ifdef AECONN_BOOST_ASIO
// Beast's customization points to end a stream: close() delivers what was written without blocking.
inline void beast_close_socket(Stream& stream) { stream.close(); }
inline void teardown(boost::beast::role_type, Stream& stream, detail::ErrorCode& error) {
  stream.close();
  error = {};
}
template <class Handler>
void async_teardown(boost::beast::role_type, Stream& stream, Handler&& handler) {
  stream.close();
  std::decay_t<Handler> its(std::forward<Handler>(handler));
  detail::post(stream.get_executor(), std::move(its), detail::ErrorCode());
}
#endif

}  // namespace AECONN_ASIO_INLINE
}}}  // namespace adapters::asio
