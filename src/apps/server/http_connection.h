// A connection of the server: of http.cpp alone, which is the one file that is compiled with Boost.
#pragma once

#include <poll.h>

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <deque>
#include <limits>
#include <optional>

#include "apps/server/http_state.h"
#include "apps/server/web_frames.h"
#include "base/error.h"
#include "base/names.h"

namespace ebb::server {

namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;
using ErrorCode = boost::system::error_code;

inline bool is_line(std::string_view text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) == text.npos;
}

inline std::string_view reason_of(int status) {
  const auto known = http::int_to_status(static_cast<unsigned>(status));
  const auto text = http::obsolete_reason(known);
  return {text.data(), text.size()};
}

// Without the empty line behind. Texts that could end a line are left out.
inline std::string header_text(int status, const Headers& headers) {
  std::string out = str("HTTP/1.1 ", status, ' ', reason_of(status), "\r\n");
  for (const auto& [name, value] : headers)
    if (is_line(name) && is_line(value)) out += name + ": " + value + "\r\n";
  return out;
}

// Of a stream, until its peer has taken it.
struct Message {
  std::string bytes;
  bool is_text = true;
  std::shared_ptr<ByteCount> own = {}, large = {};  // among those of the stream, of all streams
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<State> s, tcp::socket socket)
      : state_(std::move(s)), socket_(std::move(socket)), deadline_(state_->io) {
    ErrorCode ignored;
    address_ = socket_.remote_endpoint(ignored).address().to_string();
    socket_.set_option(tcp::no_delay(true), ignored);
    address_bytes_ = state_->joined(this, address_);
  }
  ~Connection() { state_->left(this, address_); }
  const std::string& address() const { return address_; }

  void start() { read_header(true); }
  void close() {
    ErrorCode ignored;
    deadline_.cancel();
    socket_.close(ignored);
    events_.clear(), sent_ = {}, taken_ = nullptr;
    answer_.reset(), answer_of_address_.reset();
    leave();
    kept_ = nullptr;
  }
  // Where it waits for a request.
  void close_idle() {
    if (idle_) close();
  }

  // ---- answers
  void write(Reply reply) {
    if (answered_) return;
    answered_ = true, leave_ = nullptr;
    stop_watching();
    if (method_ != "HEAD" && !has_room(reply.body.size()))
      reply = fault(503, "too much waits for clients that do not read it; come again in a while");
    Headers headers{{"Content-Type", reply.type},
                    {"Content-Length", std::to_string(reply.body.size())},
                    {"Connection", keep_ ? "keep-alive" : "close"}};
    if (reply.status == 204 || reply.status == 304)
      headers.erase(headers.begin(), headers.end() - 1);
    for (auto& h : reply.headers) headers.push_back(std::move(h));
    for (auto& h : extra_) headers.push_back(std::move(h));
    out_ = header_text(reply.status, headers) + "\r\n";
    if (method_ != "HEAD") out_ += reply.body;
    written_ = 0;
    write_out(&Connection::wrote);
  }

  void begin_stream(Headers more) {
    if (answered_) return;
    if (left_) return close();
    answered_ = true, keep_ = false;
    ended_ = method_ == "HEAD";  // which has no body
    kept_ = shared_from_this();
    for (auto& h : more) extra_.push_back(std::move(h));
    Headers headers{{"Content-Type", "text/event-stream"},
                    {"Cache-Control", "no-store"},
                    {"X-Accel-Buffering", "no"},
                    {"Connection", "close"}};
    for (auto& h : extra_) headers.push_back(std::move(h));
    events_.push_front({header_text(200, headers) + "\r\n"});
    write_event();
  }
  // Its messages are those of a stream, in frames.
  void begin_websocket(const Request& r) {
    if (answered_) return;
    if (left_ || buffer_.size() > 0) return close();  // it says nothing before the answer
    answered_ = true, keep_ = false, writing_ = true;
    kept_ = shared_from_this();
    stop_watching();
    arm(state_->limits.header_time);
    frames_ = std::make_unique<WebFrames>(socket_);
    frames_->accept(r, extra_, [self = shared_from_this()](ErrorCode e) {
      if (e) return self->close();
      self->read_frames();
      self->write_event();
    });
  }
  void send_event(Message m) {
    if (ended_) return;
    events_.push_back(std::move(m));
    if (!writing_) write_event();
  }
  void when_taken(std::function<void()> call) {
    if (!writing_) return call();
    taken_ = std::move(call);
  }
  void end_stream(Message last) {
    if (std::exchange(ended_, true)) return;
    if (frames_)
      reason_ = std::move(last.bytes);
    else if (!last.bytes.empty())
      events_.push_back(std::move(last));
    if (writing_) return;
    if (events_.empty() && !frames_) return close();
    write_event();
  }
  void set_leave(std::function<void()> call) {
    if (left_ || !socket_.is_open()) return call();
    leave_ = std::move(call);
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  // Of an answer, which counts until the peer has taken it.
  bool has_room(size_t bytes) {
    const Limits& l = state_->limits;
    if (bytes <= l.small_answer) return true;
    const size_t of_address = answer_of_address_.emplace(address_bytes_).grow(bytes),
                 of_all = answer_.emplace(state_->answer_bytes).grow(bytes);
    const bool has = (of_address == bytes || of_address <= l.answers_of_address) &&
                     (of_all == bytes || of_all <= l.answers);
    if (!has) answer_.reset(), answer_of_address_.reset();
    return has;
  }

  // `then` where something has happened, unless the connection is gone by then.
  template <class Then>
  auto weakly(Then then) {
    return [self = weak_from_this(), then = std::move(then)](ErrorCode e, auto&&...) {
      if (const auto c = self.lock()) then(*c, e);
    };
  }

  // Closes it at its end unless armed again; or does `late`.
  void arm(std::chrono::milliseconds time, void (Connection::*late)() = &Connection::close) {
    deadline_.expires_after(time);
    deadline_.async_wait(weakly([late](Connection& c, ErrorCode e) {
      if (!e && c.deadline_.expiry() <= Clock::now()) (c.*late)();
    }));
  }

  void leave() {
    if (const auto call = std::exchange(leave_, nullptr)) call();
  }

  // The header's time begins with the connection, or with the first byte of a later request.
  void read_header(bool first) {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(state_->limits.header_bytes));
    parser_->body_limit(std::numeric_limits<uint64_t>::max());  // until admit() says it
    parser_->on_chunk_header(chunk_check_);
    extra_.clear(), method_.clear(), path_.clear(), fault_ = nullptr;
    answered_ = false, keep_ = false, left_ = false, idle_ = buffer_.size() == 0;
    arm(first || !idle_ ? state_->limits.header_time : state_->limits.idle);
    if (!idle_) return read_header_bytes();
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this(), first](ErrorCode e) {
      self->idle_ = false;
      if (e) return self->close();
      if (!first) self->arm(self->state_->limits.header_time);
      self->read_header_bytes();
    });
  }

  void read_header_bytes() {
    http::async_read_header(
        socket_, buffer_, *parser_,
        [self = shared_from_this()](ErrorCode e, size_t) { self->header_read(e); });
  }

  void header_read(ErrorCode e) {
    if (e == http::error::end_of_stream || e == asio::error::operation_aborted) return close();
    if (e == http::error::header_limit || e == http::error::buffer_overflow)
      return refuse(431, str("the header is larger than ", state_->limits.header_bytes, " bytes"));
    if (e) {
      if (e.category() != http::make_error_code(http::error::bad_value).category()) return close();
      return refuse(400, str("not HTTP: ", e.message()));
    }
    auto request = std::make_shared<Request>();
    const auto& head = parser_->get();
    request->method = std::string(head.method_string());
    request->target = std::string(head.target());
    request->remote = address_;
    for (const auto& field : head)
      request->headers.emplace_back(small_letters(std::string(field.name_string())),
                                    std::string(field.value()));
    method_ = request->method;
    if (request->headers.size() > state_->limits.headers)
      return refuse(431, str("more than ", state_->limits.headers, " headers"));
    if (!parse_target(*request)) return refuse(400, "the target of the request is not valid");
    path_ = request->path;
    Admission admission = state_->handler.admit(*request);
    extra_ = std::move(admission.headers), fault_ = std::move(admission.fault);
    if (admission.refusal) return write(std::move(*admission.refusal));
    const auto length = parser_->content_length();
    if (length && *length > admission.body_limit)
      return refuse(413, str("the body of ", *length, " bytes is larger than ",
                             admission.body_limit, " bytes"));
    parser_->body_limit(admission.body_limit);
    body_limit_ = admission.body_limit;
    request_ = std::move(request);
    begin_body(head[http::field::expect]);
  }

  void begin_body(boost::beast::string_view expect) {
    body_start_ = Clock::now(), count_ = std::make_shared<ByteCount>(state_->body_bytes);
    if (parser_->is_done()) return handle();
    if (small_letters(std::string(expect)) != "100-continue") return read_body();
    out_ = "HTTP/1.1 100 Continue\r\n\r\n", written_ = 0;
    write_out(&Connection::read_body);
  }

  void read_body() {
    body_stopped_ = false;
    arm(state_->limits.slow_body, &Connection::stop_body);
    http::async_read_some(socket_, buffer_, *parser_,
                          [self = shared_from_this()](ErrorCode e, size_t) { self->body_came(e); });
  }

  // The read that waits ends with an error.
  void stop_body() {
    body_stopped_ = true;
    ErrorCode ignored;
    socket_.cancel(ignored);
  }

  void body_came(ErrorCode e) {
    const Limits& l = state_->limits;
    if (e == asio::error::operation_aborted && body_stopped_)
      return refuse(408, str("the body stopped behind ", parser_->get().body().size(), " bytes"));
    if (e == http::error::body_limit)
      return refuse(413, str("the body is larger than ", body_limit_, " bytes"));
    if (e && e.category() != http::make_error_code(http::error::bad_value).category())
      return close();
    if (e == http::error::partial_message || e == http::error::end_of_stream) return close();
    if (e) return refuse(400, str("not HTTP: ", e.message()));
    const size_t now = parser_->get().body().size();
    if (count_->grow(now) > l.bodies)
      return refuse(429,
                    str("the requests that are being read and worked on have more than ",
                        l.bodies >> 20, " MB; try again later"),
                    {{"Retry-After", "5"}});
    if (parser_->is_done()) return handle();
    const std::chrono::duration<double> spent = Clock::now() - body_start_;
    if (spent > l.slow_body &&
        static_cast<double>(now) < spent.count() * static_cast<double>(l.body_rate))
      return refuse(408, "the body comes too slowly");
    read_body();
  }

  void handle();

  Reply fault(int status, const std::string& sentence) const {
    return (fault_ ? fault_ : state_->handler.fault)(status, sentence);
  }
  void refuse(int status, const std::string& sentence, Headers headers = {}) {
    if (const auto& told = state_->handler.refused) told(method_, path_, status);
    keep_ = false, answered_ = false;
    parser_.reset(), count_ = nullptr;  // what was read of the body
    Reply r = fault(status, sentence);
    for (auto& h : headers) r.headers.push_back(std::move(h));
    write(std::move(r));
  }

  // All of out_, then `next`. A peer may take it as slowly as it likes, but not stop.
  void write_out(void (Connection::*next)()) {
    arm(state_->limits.write_stall);
    socket_.async_write_some(asio::buffer(out_.data() + written_, out_.size() - written_),
                             [self = shared_from_this(), next](ErrorCode e, size_t n) {
                               if (e) return self->close();
                               self->written_ += n;
                               if (self->written_ < self->out_.size()) return self->write_out(next);
                               (*self.*next)();
                             });
  }

  void wrote() {
    out_.clear(), out_.shrink_to_fit();
    answer_.reset(), answer_of_address_.reset();
    if (keep_ && !state_->finishing) return read_header(false);
    // A peer that still sends must get the answer before its bytes are refused.
    ErrorCode ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    arm(std::chrono::seconds(1));
    drain(0);
  }

  void drain(size_t before) {
    constexpr size_t enough = size_t{64} << 20;
    if (before > enough) return close();
    drained_.resize(65536);
    socket_.async_read_some(asio::buffer(drained_),
                            [self = shared_from_this(), before](ErrorCode e, size_t n) {
                              e ? self->close() : self->drain(before + n);
                            });
  }

  // ---- a peer that leaves
  void watch() {
    const size_t turn = ++watching_;
    socket_.async_wait(tcp::socket::wait_read, weakly([turn](Connection& c, ErrorCode e) {
                         if (!e && c.watching_ == turn) c.look(turn);
                       }));
  }
  // A peer that sends no more may have left, or wait for the answer: it gets one that comes.
  void look(size_t turn) {
    pollfd p{socket_.native_handle(), POLLIN | POLLRDHUP, 0};
    ::poll(&p, 1, 0);
    if ((p.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) return close();
    if ((p.revents & POLLRDHUP) != 0) {
      if (kept_) return close();
      left_ = true;
      return leave();
    }
    if ((p.revents & POLLIN) == 0) return watch();
    if (kept_) return;  // its events tell
    // The next request waits, unread, and the socket would be readable at once.
    deadline_.expires_after(std::chrono::milliseconds(500));
    deadline_.async_wait(weakly([turn](Connection& c, ErrorCode e) {
      if (!e && c.watching_ == turn && !c.answered_) c.look(turn);
    }));
  }
  void stop_watching() {
    ++watching_;
    ErrorCode ignored;
    if (socket_.is_open()) socket_.cancel(ignored);
  }

  // ---- event streams
  void write_event() {
    sent_ = {};
    if (events_.empty()) {
      writing_ = false;
      if (ended_) return frames_ ? close_frames() : wrote();
      if (const auto call = std::exchange(taken_, nullptr)) call();
      return ping_later();
    }
    writing_ = true;
    sent_ = std::move(events_.front());
    events_.pop_front();
    out_ = std::move(sent_.bytes), written_ = 0;
    if (!frames_) return write_out(&Connection::write_event);
    arm(state_->limits.write_stall);
    frames_->write(out_, sent_.is_text,
                   weakly([](Connection& c, ErrorCode e) { e ? c.close() : c.write_event(); }));
  }
  void ping_later() {
    deadline_.expires_after(state_->limits.ping);
    deadline_.async_wait(weakly([](Connection& c, ErrorCode e) {
      if (e || c.writing_ || !c.socket_.is_open()) return;
      if (!c.frames_) return c.send_event({": ping\n\n"});
      c.arm(c.state_->limits.write_stall);
      c.frames_->ping(c.weakly([](Connection& still, ErrorCode failed) {
        if (failed) return still.close();
        if (!still.writing_) still.ping_later();
      }));
    }));
  }

  // ---- WebSockets: frames that wait for others hold their connection weakly, as behind a goodbye
  // they may wait for as long as it lives.
  void read_frames() {
    frames_->read(weakly([](Connection& c, ErrorCode e) { e ? c.close() : c.read_frames(); }));
  }
  void close_frames() {
    writing_ = true;
    arm(std::chrono::seconds(1));
    frames_->close(reason_, weakly([](Connection& c, ErrorCode) { c.close(); }));
  }

  std::shared_ptr<State> state_;
  tcp::socket socket_;
  asio::steady_timer deadline_;
  std::string address_;
  boost::beast::flat_buffer buffer_{size_t{1} << 17};
  std::optional<Parser> parser_;
  std::function<void(std::uint64_t, boost::beast::string_view, ErrorCode&)> chunk_check_ =
      [](std::uint64_t, boost::beast::string_view extensions, ErrorCode& e) {
        if (!extensions.empty()) e = http::error::bad_chunk_extension;
      };
  std::shared_ptr<Request> request_;
  size_t body_limit_ = 0;
  std::shared_ptr<ByteCount> count_;
  Bytes address_bytes_;                                  // of answers to its address
  std::optional<ByteCount> answer_, answer_of_address_;  // that is being written
  Clock::time_point body_start_;
  Headers extra_;
  std::function<Reply(int, const std::string&)> fault_;  // of the request
  std::string method_, path_, out_, drained_;
  size_t written_ = 0, watching_ = 0;
  std::deque<Message> events_;
  Message sent_;  // its bytes are in out_
  std::function<void()> taken_;
  std::string reason_;                 // of a WebSocket's goodbye
  std::unique_ptr<WebFrames> frames_;  // of a WebSocket
  bool body_stopped_ = false, answered_ = false, keep_ = false, idle_ = false, writing_ = false,
       ended_ = false, left_ = false;
  std::shared_ptr<Connection> kept_;  // of an event stream, until it closes
  std::function<void()> leave_;
};

}  // namespace ebb::server
