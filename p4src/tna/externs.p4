// SPDX-License-Identifier: Apache-2.0
// How the Tofino native architecture spells what the shared stages need; v1model/externs.p4 is its twin.
#ifndef TNA_EXTERNS_P4
#define TNA_EXTERNS_P4

// The PCIe port of a Tofino 1 with four pipes.
const bit<9> CPU_PORT = 320;

// What fits beside 65,536 IPv4 flows in the five stages that the rest leaves; flow indices are shared.
#define FLOWS_IPV6_SIZE 24576

typedef bit<8> color_t;
const color_t COLOR_GREEN = 0;

// An index is a value of 12 bits: port ++ class or port ++ queue.
#define COUNTER(size) Counter<bit<64>, bit<12>>(size, CounterType_t.PACKETS_AND_BYTES)
#define PORT_COUNTER() Counter<bit<64>, port_t>(PORTS_SIZE, CounterType_t.PACKETS_AND_BYTES)
// 36 bits of bytes: two counters a word. The driver sums them up to 64 bits before they wrap.
#define DIRECT_COUNTER() DirectCounter<bit<36>>(CounterType_t.PACKETS_AND_BYTES)
#define METER(size) Meter<bit<12>>(size, MeterType_t.BYTES)
#define DIRECT_METER() DirectMeter(MeterType_t.BYTES)
#define EXECUTE_METER(meter, index, color) color = meter.execute(index)
#define READ_DIRECT_METER(meter, color) color = meter.execute()
#define COUNTED_BY(counter) counters = counter
#define METERED_BY(meter) meters = meter
#define IDLE_TIMEOUT idle_timeout = true
// A flow has a meter and a counter, and the meter's colour wants the bus of one more: no idle timeout.
#define FLOW_TIMEOUT

#endif
