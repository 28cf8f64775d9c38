// SPDX-License-Identifier: Apache-2.0
// The switch in virtual time: docs/switch/library.md. Made from switch/c/src/lib.rs.
//
// Bytes that a call hands out belong to the switch until its next call. One thread at a time may use a switch.

#ifndef APSWITCH_H
#define APSWITCH_H

#include <stddef.h>
#include <stdint.h>

// Result of a call.
typedef enum aps_result {
  APS_OK = 0,
  // Nothing to take.
  APS_NOTHING = 1,
  // The caller's mistake: aps_error() names it and the mend.
  APS_ERROR = 2,
  // P4Runtime refused: the bytes are a google.rpc.Status, and aps_error() has its text.
  APS_STATUS = 3,
} aps_result;

// RPCs that are one request and one answer, for aps_call().
typedef enum aps_method {
  APS_WRITE = 0,
  // All answers are one ReadResponse.
  APS_READ = 1,
  APS_SET_FORWARDING_PIPELINE_CONFIG = 2,
  APS_GET_FORWARDING_PIPELINE_CONFIG = 3,
  APS_CAPABILITIES = 4,
} aps_method;

// A switch in virtual time. One thread at a time may use it.
typedef struct aps_switch aps_switch;

// Bytes that belong to the switch, until its next call.
typedef struct aps_bytes {
  const uint8_t *data;
  size_t length;
} aps_bytes;

// A frame that a port sent; its bytes are valid until the switch's next call.
typedef struct aps_frame {
  struct aps_bytes bytes;
  // ns: when it had left the port's link.
  uint64_t at;
  uint16_t port;
} aps_frame;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// A switch without a program, at time 0. `words`: `count` options of the program `apswitch` that say what it is made
// of:
// -i, --link, --queue, --cpu-port, --priority-queues, --device-id, --seed (1 if missing). Null: `error`, of
// `error_size` bytes, has the line that says why.
//
// # Safety
// `words` points to as many texts that end with 0, `error` to so many bytes or `error_size` is 0.
struct aps_switch *aps_new(const char *const *words,
                           size_t count,
                           char *error,
                           size_t error_size);

// Ends the switch, and frees it; null is none.
//
// # Safety
// `aps` is null or of [`aps_new`], and not used any more.
void aps_free(struct aps_switch *aps);

// The line of the last error of this switch; valid until its next call.
//
// # Safety
// `aps` is of [`aps_new`].
const char *aps_error(const struct aps_switch *aps);

// The switch's time in ns since its start.
//
// # Safety
// `aps` is of [`aps_new`].
uint64_t aps_now(const struct aps_switch *aps);

// Returns when the switch has something to do next, in ns: to be advanced to by then. It is never further away than
// 100 ms, as entries are looked at for their age.
//
// # Safety
// `aps` is of [`aps_new`].
uint64_t aps_deadline(const struct aps_switch *aps);

// Does all that is due until `to` ns, each at its time. APS_ERROR: time would go back.
//
// # Safety
// `aps` is of [`aps_new`].
enum aps_result aps_advance(struct aps_switch *aps, uint64_t to);

// A frame arrives at a port, now. APS_ERROR: there is no such port, or the frame is too long.
//
// # Safety
// `aps` is of [`aps_new`], and `frame` points to `length` bytes.
enum aps_result aps_receive(struct aps_switch *aps,
                            uint16_t port,
                            const uint8_t *frame,
                            size_t length);

// Lets the device behind a port, with a short queue of its own, take so many frames more from now on. What it does not
// take waits in the port's queues. A port of which this was never said sends what it can. APS_ERROR: there is no such
// port, or it has no --link and so no queue.
//
// # Safety
// `aps` is of [`aps_new`].
enum aps_result aps_allow(struct aps_switch *aps,
                          uint16_t port,
                          uint32_t frames);

// The next frame that a port sent, in the order of time; APS_NOTHING: there is none.
//
// # Safety
// `aps` is of [`aps_new`], and `frame` points to a frame to be set.
enum aps_result aps_sent(struct aps_switch *aps, struct aps_frame *frame);

// An RPC of P4Runtime, one of aps_method: `request` and `to` are messages as protobuf writes them.
//
// # Safety
// `aps` is of [`aps_new`], `request` points to `length` bytes, and `to` to bytes to be set.
enum aps_result aps_call(struct aps_switch *aps,
                         uint32_t method,
                         const uint8_t *request,
                         size_t length,
                         struct aps_bytes *to);

// Opens a StreamChannel, which `stream` names from now on.
//
// # Safety
// `aps` is of [`aps_new`], and `stream` points to a number to be set.
enum aps_result aps_stream_open(struct aps_switch *aps, uint64_t *stream);

// Sends a StreamMessageRequest. APS_STATUS: the stream has ended, and `to` is why.
//
// # Safety
// As of [`aps_call`].
enum aps_result aps_stream_send(struct aps_switch *aps,
                                uint64_t stream,
                                const uint8_t *message,
                                size_t length,
                                struct aps_bytes *to);

// Takes the next StreamMessageResponse; APS_NOTHING: there is none. APS_STATUS: the stream has ended, and `to` is why.
//
// # Safety
// `aps` is of [`aps_new`], and `to` points to bytes to be set.
enum aps_result aps_stream_take(struct aps_switch *aps,
                                uint64_t stream,
                                struct aps_bytes *to);

// Ends a stream, as if its client went away.
//
// # Safety
// `aps` is of [`aps_new`].
void aps_stream_close(struct aps_switch *aps, uint64_t stream);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* APSWITCH_H */
