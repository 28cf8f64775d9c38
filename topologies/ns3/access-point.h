// SPDX-License-Identifier: Apache-2.0
// The access point in ns-3: the switch in virtual time (docs/switch/library.md) between devices of a node, as ns-3's
// BridgeNetDevice is a bridge between them. docs/ns3.md says how a scene is made of it.
#ifndef ACCESS_POINT_H
#define ACCESS_POINT_H

#include "ns3/address.h"
#include "ns3/event-id.h"
#include "ns3/net-device.h"
#include "ns3/object.h"
#include "ns3/queue.h"

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

// Types of apswitch.h, which only the source includes: a scene needs no more than this header.
struct aps_switch;

namespace ns3
{

/**
 * The switch, with devices of one node as its ports. No call aborts: what goes wrong is told by GetError(), one line that
 * names it and the mend, and ends the simulation.
 */
class AccessPoint : public Object
{
  public:
    static TypeId GetTypeId();
    AccessPoint();
    ~AccessPoint() override;

    /**
     * A device becomes the next port; all are of one node.
     *
     * @param device an 802.11 AP's, or another that sends from others' addresses and is not of a bridge.
     * @param link what the port's queues and its link do, as `apswitch --link` takes it behind the port's number:
     *     "rate=1mbit,limit=1000". Empty: no queue, what comes goes.
     * @param limit packets that the device itself may hold: what it has no room for waits in the port's queues. 0: the
     *     device takes all, and has queues of its own. Else `link` has to give the port a queue.
     * @returns the port's number, from 1 on; 0: an error.
     */
    uint16_t AddPort(Ptr<NetDevice> device, std::string link = "", uint32_t limit = 0);

    /**
     * From now on it is there, without a program.
     *
     * @param options more of `apswitch`'s, parted by spaces: "--cpu-port 510 --seed 7".
     * @returns whether it could be made.
     */
    bool Start(std::string options = "");

    /** The first thing that went wrong; empty: nothing has. */
    std::string GetError() const;

    /** Frames that came in through a port, and that left through it. */
    uint64_t GetReceived(uint16_t port) const;
    uint64_t GetSent(uint16_t port) const;

    /** Frames that the device behind a port took and dropped before its own queue. */
    uint64_t GetRefused(uint16_t port) const;

    /** For the calls in c_api.cc that Python makes: names this access point, and no other after it. */
    uint64_t GetHandle() const;
    /** The one of a handle; null: there is none, or it is there no more. */
    static AccessPoint* Find(uint64_t handle);

    // The rest is for those calls.

    /** The switch, at the time of now; null: it cannot be used. */
    aps_switch* Use();
    /** Takes what a call to the switch made it send, and says when it wants to be asked next. */
    void Settle();
    /** Messages of this stream are kept, and `told` is called when there are some. */
    void Listen(uint64_t stream, void (*told)());
    /** Its messages are not kept any more, and its `told` may be gone when this returns. */
    void Forget(uint64_t stream);
    /** The next message, or how the stream ended (`ended`); false: there is none. */
    bool Take(std::string& message, bool& ended);
    void Fail(const std::string& line);

  protected:
    void DoDispose() override;

  private:
    struct Port
    {
        Ptr<NetDevice> device;
        std::string link;
        uint32_t limit = 0;
        /** Frames that the switch may still give. */
        uint32_t allowed = 0;
        /** The device's own; with QoS an 802.11 device has one for each access category. */
        std::vector<Ptr<QueueBase>> queues;
        EventId refill;
        uint64_t received = 0;
        uint64_t sent = 0;
        uint64_t refused = 0;
    };

    struct Message
    {
        std::string bytes;
        bool ended;
    };

    bool FindQueues(Port& port);
    void Receive(Ptr<NetDevice> device,
                 Ptr<const Packet> packet,
                 uint16_t protocol,
                 const Address& from,
                 const Address& to,
                 NetDevice::PacketType type);
    void Send(Port& port, const uint8_t* frame, size_t length);
    void Wake();
    void Changed(size_t index, uint32_t before, uint32_t now);
    void Refill(size_t index);
    /** Number of frames that the device still has room for. */
    uint32_t GetRoom(const Port& port) const;

    uint64_t m_handle;
    std::vector<Port> m_ports;
    aps_switch* m_switch = nullptr;
    /** Simulated time at which the switch's began, ns. */
    uint64_t m_began = 0;
    std::string m_error;
    EventId m_wake;
    uint64_t m_wakeAt = 0;
    bool m_listens = false;
    uint64_t m_stream = 0;
    void (*m_told)() = nullptr;
    EventId m_telling;
    std::deque<Message> m_messages;
    /** Bytes of the frame that is being handed in. */
    std::vector<uint8_t> m_frame;
};

} // namespace ns3

#endif
