// SPDX-License-Identifier: Apache-2.0
// How v1model spells what the shared stages need of an architecture; tna/externs.p4 is its twin.
#ifndef V1MODEL_EXTERNS_P4
#define V1MODEL_EXTERNS_P4

const bit<9> CPU_PORT = 510;

#define FLOWS_IPV6_SIZE 65536

// In microseconds: 48 bits do not wrap.
typedef bit<48> time_t;

typedef bit<2> color_t;
const color_t COLOR_GREEN = 0;

#define COUNTER(size) counter(size, CounterType.packets_and_bytes)
#define PORT_COUNTER() COUNTER(PORTS_SIZE)
#define DIRECT_COUNTER() direct_counter(CounterType.packets_and_bytes)
#define METER(size) meter(size, MeterType.bytes)
#define DIRECT_METER() direct_meter<color_t>(MeterType.bytes)
#define EXECUTE_METER(meter, index, color) meter.execute_meter<color_t>((bit<32>)(index), color)
#define READ_DIRECT_METER(meter, color) meter.read(color)
#define COUNTED_BY(counter) counters = counter
#define METERED_BY(meter) meters = meter
#define IDLE_TIMEOUT support_timeout = true
#define FLOW_TIMEOUT IDLE_TIMEOUT;
// A stage is left for what is meant for one neighbour.
#define FLOODS_NO_NEIGHBOUR
// `window_scale` does.
#define READS_WINDOW_SCALE
// `lanes` does.
#define MEASURES_LANES
// A stage behind the meter of a queue can still see who was turned away there.
#define DEMOTED_IS_REGULATED

#endif
