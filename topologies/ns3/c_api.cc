// SPDX-License-Identifier: Apache-2.0
// C API for Python's ctypes (virtual.py): the simulator's clock, and P4Runtime messages of an access point as bytes.
#include "access-point.h"

#include "apswitch.h"

#include "ns3/simulator.h"

#include <string>

using namespace ns3;

namespace
{

/// Bytes of the last call's answer, until the next call.
std::string g_bytes;
EventId g_alarm;

/// Keep a call's answer while the switch acts on it. An internal error of the switch ends it, and leaves no answer.
aps_result
Answer(AccessPoint* ap, aps_switch* aps, aps_result result, aps_bytes* to)
{
    if (result == APS_ERROR)
    {
        ap->Fail(aps_error(aps));
        *to = {nullptr, 0};
        return result;
    }
    g_bytes.assign(reinterpret_cast<const char*>(to->data), to->length);
    *to = {reinterpret_cast<const uint8_t*>(g_bytes.data()), g_bytes.size()};
    ap->Settle();
    return result;
}

} // namespace

extern "C"
{
/// Simulated time in ns.
uint64_t
ap_now()
{
    return Simulator::Now().GetNanoSeconds();
}

/// `ring` is called once, at `at` ns, or now if that is over; an earlier alarm is forgotten.
void
ap_alarm(uint64_t at, void (*ring)())
{
    g_alarm.Cancel();
    const uint64_t now = ap_now();
    g_alarm = Simulator::Schedule(NanoSeconds(at > now ? at - now : 0), ring);
}

void
ap_no_alarm()
{
    g_alarm.Cancel();
}

/// The end of all that a simulation has made; what hands out nothing to end it with has to be followed by this.
void
ap_destroy()
{
    Simulator::Destroy();
}

/// The simulation ends with this event.
void
ap_stop()
{
    Simulator::Stop();
}

/// As aps_call(); APS_ERROR: the access point has ended.
aps_result
ap_call(uint64_t handle, uint32_t method, const uint8_t* request, size_t length, aps_bytes* to)
{
    auto ap = AccessPoint::Find(handle);
    auto aps = ap ? ap->Use() : nullptr;
    *to = {nullptr, 0};
    return aps ? Answer(ap, aps, aps_call(aps, method, request, length, to), to) : APS_ERROR;
}

/// Opens the stream; `told` is called, between events, when there is something to take.
aps_result
ap_stream_open(uint64_t handle, uint64_t* stream, void (*told)())
{
    auto ap = AccessPoint::Find(handle);
    auto aps = ap ? ap->Use() : nullptr;
    if (!aps)
    {
        return APS_ERROR;
    }
    const auto result = aps_stream_open(aps, stream);
    if (result == APS_OK)
    {
        ap->Listen(*stream, told);
    }
    else if (result == APS_ERROR)
    {
        ap->Fail(aps_error(aps));
    }
    return result;
}

aps_result
ap_stream_send(uint64_t handle, uint64_t stream, const uint8_t* message, size_t length, aps_bytes* to)
{
    auto ap = AccessPoint::Find(handle);
    auto aps = ap ? ap->Use() : nullptr;
    *to = {nullptr, 0};
    return aps ? Answer(ap, aps, aps_stream_send(aps, stream, message, length, to), to) : APS_ERROR;
}

/// As aps_stream_take(). APS_STATUS: the stream has ended, and `to` is why.
aps_result
ap_stream_take(uint64_t handle, aps_bytes* to)
{
    auto ap = AccessPoint::Find(handle);
    bool ended = false;
    if (!ap || !ap->Take(g_bytes, ended))
    {
        return APS_NOTHING;
    }
    *to = {reinterpret_cast<const uint8_t*>(g_bytes.data()), g_bytes.size()};
    return ended ? APS_STATUS : APS_OK;
}

/// Ends it, if it has not ended; its `told` is not called any more.
void
ap_stream_close(uint64_t handle, uint64_t stream)
{
    auto ap = AccessPoint::Find(handle);
    if (!ap)
    {
        return;
    }
    ap->Forget(stream);
    if (auto aps = ap->Use())
    {
        aps_stream_close(aps, stream);
    }
}
}
