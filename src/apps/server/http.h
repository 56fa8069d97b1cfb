// HttpServer: HTTP/1.1 on sockets, all on the one thread that calls run(): limits, timeouts, event
// streams, WebSockets. What is asked and answered is seen by others as Request, Reply, Exchange,
// EventStream.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ebb::server {

struct Limits {
  size_t connections = 256, connections_of_address = 64;
  size_t header_bytes = 16384, headers = 100;
  size_t bodies = size_t{512} << 20;  // of all requests that are being read or worked on
  std::chrono::milliseconds header_time{10'000}, idle{60'000}, write_stall{20'000};
  // A body may be slower than `body_rate` bytes a second for so long.
  std::chrono::milliseconds slow_body{5'000};
  size_t body_rate = 8192;
  // Of answers that their peers have not taken yet, of an address and of all, but for one of any
  // size where nothing else waits, and small ones.
  size_t answers_of_address = size_t{128} << 20, answers = size_t{256} << 20,
         small_answer = size_t{64} << 10;
  // Of what a peer has not taken yet: of each stream, but for one larger message where nothing else
  // waits; and such larger ones of all streams, but for one of them.
  size_t streams = 64, stream_bytes = size_t{256} << 10, streams_bytes = size_t{64} << 20;
  std::chrono::milliseconds ping{15'000};  // of streams that are silent
};

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method, target;
  std::string path;  // of the target, percent-decoded
  Headers query;     // decoded
  Headers headers;   // names in small letters
  std::string body;
  std::shared_ptr<const void> counted;  // the body among Limits::bodies, while somebody holds it
  std::string remote;                   // the peer's address

  std::string_view header(std::string_view name) const;  // the first one; "" where there is none
  size_t count(std::string_view name) const;
  std::string_view parameter(std::string_view name) const;  // of the query
};

struct Reply {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  Headers headers = {};
};

// What became of a message: it is sent in its turn; or it is not, as what was sent before must be
// taken first; or it is not, as the peer is gone or too much waits in all streams.
enum class Sent : uint8_t { yes, behind, refused };

// Events, or messages of a WebSocket, are sent in order. What the peer of a WebSocket says is
// dropped. Any thread may call.
class EventStream {
 public:
  virtual ~EventStream() = default;
  virtual Sent send(std::string text) = 0;
  virtual Sent send_bytes(std::string bytes) = 0;  // a binary message, of WebSockets alone
  // On the I/O thread, once the peer has taken all that was sent; never where it is gone.
  virtual void when_taken(std::function<void()> call) = 0;
  // Behind what was sent; `last` is sent before, however much waits for this peer. Refused, and not
  // closed, where it is a large one and too much waits in all streams. Of a WebSocket it is the
  // reason that its goodbye gives, of at most 123 bytes.
  virtual Sent close(std::string last = {}) = 0;
};

// The answer to one request, once. Any thread may call.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void reply(Reply reply) = 0;
  // Null where there are too many; then reply() is to follow.
  virtual std::shared_ptr<EventStream> stream(Headers headers = {}) = 0;
  // The request, as it came to the handler, becomes a WebSocket. Null likewise, and where it asks
  // for none.
  virtual std::shared_ptr<EventStream> websocket(const Request& request) = 0;
  // Called on the I/O thread where the peer leaves before the answer, or the stream's end; held
  // until then.
  virtual void on_leave(std::function<void()> call) = 0;
};

// What is decided when the header of a request is there.
struct Admission {
  std::optional<Reply> refusal = {};  // sent at once; the body is not read
  size_t body_limit = 0;
  Headers headers = {};  // of the answer, whatever it is
  // What a fault of the protocol is answered with from here on; none: as HttpHandler has it.
  std::function<Reply(int status, const std::string& sentence)> fault = {};
};

struct HttpHandler {
  std::function<Admission(const Request&)> admit;  // without a body
  std::function<void(std::shared_ptr<const Request>, std::shared_ptr<Exchange>)> handle;
  // What a fault of the protocol itself is answered with, where no Admission says it.
  std::function<Reply(int status, const std::string& sentence)> fault;
  // Told of each such fault; may be null. "": it was not read.
  std::function<void(const std::string& method, const std::string& path, int status)> refused = {};
};

class HttpServer {
 public:
  // Listens; port 0: any that is free, the same at all addresses. Throws Error where that cannot be
  // at the first one; others, as ::1, need not be there.
  HttpServer(const std::vector<std::string>& addresses, uint16_t port, const Limits& limits,
             HttpHandler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  void run();  // until all is answered behind finish(), or its time is over: then all are closed
  // Any thread may call these. Accepts no more; what is not answered in this time is cut off.
  void finish(std::chrono::milliseconds time);
  void post(std::function<void()> call);  // on the thread of run()

  struct State;  // of http.cpp alone

 private:
  std::shared_ptr<State> state_;
};

// Fills path and query of a target, percent-decoded. False for what is no such target: bad escapes,
// control characters, invalid UTF-8, none of "/...".
bool parse_target(Request& request);
// "%41+" -> "A " of forms; none for bad escapes.
std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space);

}  // namespace ebb::server
