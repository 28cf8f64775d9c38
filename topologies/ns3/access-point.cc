// SPDX-License-Identifier: Apache-2.0
#include "access-point.h"

#include "apswitch.h"

#include "ns3/boolean.h"
#include "ns3/global-value.h"
#include "ns3/mac48-address.h"
#include "ns3/node.h"
#include "ns3/packet.h"
#include "ns3/pointer.h"
#include "ns3/simulator.h"
#include "ns3/wifi-mac-queue.h"
#include "ns3/wifi-mac.h"
#include "ns3/wifi-net-device.h"

#include <algorithm>
#include <map>
#include <sstream>

namespace ns3
{

NS_OBJECT_ENSURE_REGISTERED(AccessPoint);

namespace
{

constexpr size_t HEADER = 14;
constexpr size_t ADDRESS = 6;
/// Below, the field is a length (IEEE Std 802.3, 3.2.6): ns-3 keeps no LLC header to put behind it.
constexpr uint16_t MIN_ETHERTYPE = 0x600;

/// By handle; Python may ask for one that is there no more.
std::map<uint64_t, AccessPoint*>&
Living()
{
    static std::map<uint64_t, AccessPoint*> living;
    return living;
}

/// A device's own queue, if it is one that ns-3's devices call TxQueue.
Ptr<QueueBase>
TxQueue(Ptr<NetDevice> device)
{
    PointerValue value;
    if (!device->GetAttributeFailSafe("TxQueue", value))
    {
        return nullptr;
    }
    return value.Get<QueueBase>();
}

} // namespace

TypeId
AccessPoint::GetTypeId()
{
    static TypeId tid =
        TypeId("ns3::AccessPoint").SetParent<Object>().SetGroupName("Network").AddConstructor<AccessPoint>();
    return tid;
}

AccessPoint::AccessPoint()
{
    static uint64_t last = 0;
    m_handle = ++last;
    Living()[m_handle] = this;
}

AccessPoint::~AccessPoint()
{
    Living().erase(m_handle);
    aps_free(m_switch);
}

void
AccessPoint::DoDispose()
{
    m_wake.Cancel();
    m_telling.Cancel();
    for (auto& port : m_ports)
    {
        port.refill.Cancel();
    }
    m_ports.clear();
    aps_free(m_switch);
    m_switch = nullptr;
    Object::DoDispose();
}

void
AccessPoint::Fail(const std::string& line)
{
    if (m_error.empty())
    {
        m_error = line;
        Simulator::Stop();
    }
}

std::string
AccessPoint::GetError() const
{
    return m_error;
}

uint16_t
AccessPoint::AddPort(Ptr<NetDevice> device, std::string link, uint32_t limit)
{
    const auto number = static_cast<uint16_t>(m_ports.size() + 1);
    const auto name = "port " + std::to_string(number);
    if (m_switch)
    {
        Fail(name + ": the access point has been started: add ports before");
    }
    else if (!device || !device->GetNode())
    {
        Fail(name + " has no device of a node: give it one that a helper installed");
    }
    else if (!m_ports.empty() && m_ports[0].device->GetNode() != device->GetNode())
    {
        Fail(name + ": its device is of another node than port 1's: an access point is one node");
    }
    else if (!device->SupportsSendFrom())
    {
        Fail(name + ": a " + device->GetInstanceTypeId().GetName() +
             " sends in its own name only: give an 802.11 AP's, a CsmaNetDevice or a SimpleNetDevice");
    }
    else if (limit && link.empty())
    {
        Fail(name + ": who limits the device's packets needs a queue for the others: give a link, as \"limit=1000\"");
    }
    else
    {
        Port port;
        port.device = device;
        port.link = std::move(link);
        port.limit = limit;
        if (limit && !FindQueues(port))
        {
            Fail(name + ": a " + device->GetInstanceTypeId().GetName() +
                 " has no queue that ns-3 shows: leave the limit out");
            return 0;
        }
        m_ports.push_back(std::move(port));
        return number;
    }
    return 0;
}

bool
AccessPoint::FindQueues(Port& port)
{
    if (auto wifi = DynamicCast<WifiNetDevice>(port.device))
    {
        for (auto category : {AC_BE_NQOS, AC_BE, AC_BK, AC_VI, AC_VO})
        {
            if (auto queue = wifi->GetMac()->GetTxopQueue(category))
            {
                port.queues.push_back(queue);
            }
        }
    }
    else if (auto queue = TxQueue(port.device))
    {
        port.queues.push_back(queue);
    }
    return !port.queues.empty();
}

bool
AccessPoint::Start(std::string options)
{
    if (!m_error.empty() || m_switch)
    {
        Fail("the access point has been started: once is enough");
        return false;
    }
    if (m_ports.empty())
    {
        Fail("the access point has no ports: add its devices first");
        return false;
    }
    BooleanValue checksums;
    GlobalValue::GetValueByName("ChecksumEnabled", checksums);
    if (!checksums.Get())
    {
        Fail("frames would have no checksums: GlobalValue::Bind(\"ChecksumEnabled\", BooleanValue(true)) before hosts "
             "are made");
        return false;
    }
    std::vector<std::string> words;
    for (size_t index = 0; index < m_ports.size(); index++)
    {
        const auto number = std::to_string(index + 1);
        words.insert(words.end(), {"-i", number + "@port" + number});
        if (!m_ports[index].link.empty())
        {
            words.insert(words.end(), {"--link", number + ":" + m_ports[index].link});
        }
    }
    std::istringstream more(options);
    for (std::string word; more >> word;)
    {
        words.push_back(word);
    }
    std::vector<const char*> texts;
    for (const auto& word : words)
    {
        texts.push_back(word.c_str());
    }
    char error[300];
    m_switch = aps_new(texts.data(), texts.size(), error, sizeof error);
    if (!m_switch)
    {
        Fail(error);
        return false;
    }
    m_began = Simulator::Now().GetNanoSeconds();
    auto node = m_ports[0].device->GetNode();
    for (size_t index = 0; index < m_ports.size(); index++)
    {
        auto& port = m_ports[index];
        node->RegisterProtocolHandler(MakeCallback(&AccessPoint::Receive, this), 0, port.device, true);
        if (port.limit)
        {
            for (const auto& queue : port.queues)
            {
                queue->TraceConnectWithoutContext("PacketsInQueue",
                                                  MakeCallback(&AccessPoint::Changed, this).Bind(index));
            }
            Refill(index);
        }
    }
    Settle();
    return m_error.empty();
}

uint64_t
AccessPoint::GetReceived(uint16_t port) const
{
    return port && port <= m_ports.size() ? m_ports[port - 1].received : 0;
}

uint64_t
AccessPoint::GetSent(uint16_t port) const
{
    return port && port <= m_ports.size() ? m_ports[port - 1].sent : 0;
}

uint64_t
AccessPoint::GetRefused(uint16_t port) const
{
    return port && port <= m_ports.size() ? m_ports[port - 1].refused : 0;
}

uint64_t
AccessPoint::GetHandle() const
{
    return m_handle;
}

AccessPoint*
AccessPoint::Find(uint64_t handle)
{
    auto found = Living().find(handle);
    return found == Living().end() ? nullptr : found->second;
}

aps_switch*
AccessPoint::Use()
{
    if (!m_error.empty() || !m_switch)
    {
        return nullptr;
    }
    const uint64_t now = Simulator::Now().GetNanoSeconds() - m_began;
    if (now != aps_now(m_switch) && aps_advance(m_switch, now) != APS_OK)
    {
        Fail(aps_error(m_switch));
        return nullptr;
    }
    return m_switch;
}

void
AccessPoint::Receive(Ptr<NetDevice> device,
                     Ptr<const Packet> packet,
                     uint16_t protocol,
                     const Address& from,
                     const Address& to,
                     NetDevice::PacketType)
{
    auto aps = Use();
    if (!aps || protocol < MIN_ETHERTYPE)
    {
        return;
    }
    auto port = std::find_if(m_ports.begin(), m_ports.end(), [&](const Port& each) { return each.device == device; });
    if (port == m_ports.end())
    {
        return;
    }
    m_frame.resize(HEADER + packet->GetSize());
    to.CopyTo(m_frame.data());
    from.CopyTo(m_frame.data() + ADDRESS);
    m_frame[2 * ADDRESS] = protocol >> 8;
    m_frame[2 * ADDRESS + 1] = protocol & 0xff;
    packet->CopyData(m_frame.data() + HEADER, packet->GetSize());
    port->received++;
    const auto number = static_cast<uint16_t>(port - m_ports.begin() + 1);
    if (aps_receive(aps, number, m_frame.data(), m_frame.size()) != APS_OK)
    {
        Fail("port " + std::to_string(number) + ": " + aps_error(aps) + "; give its devices a smaller MTU");
        return;
    }
    Settle();
}

void
AccessPoint::Settle()
{
    if (!m_switch)
    {
        return;
    }
    aps_result result;
    for (aps_frame sent{}; (result = aps_sent(m_switch, &sent)) == APS_OK;)
    {
        Send(m_ports[sent.port - 1], sent.bytes.data, sent.bytes.length);
    }
    if (result == APS_ERROR)
    {
        Fail(aps_error(m_switch));
        return;
    }
    if (m_listens)
    {
        aps_bytes message{};
        while ((result = aps_stream_take(m_switch, m_stream, &message)) != APS_NOTHING)
        {
            if (result == APS_ERROR)
            {
                Fail(aps_error(m_switch));
                return;
            }
            const bool ended = result != APS_OK;
            m_messages.push_back({{reinterpret_cast<const char*>(message.data), message.length}, ended});
            m_listens = !ended;
            if (ended)
            {
                break;
            }
        }
        if (!m_messages.empty() && !m_telling.IsPending())
        {
            m_telling = Simulator::ScheduleNow(m_told);
        }
    }
    const uint64_t at = aps_deadline(m_switch);
    if (!m_wake.IsPending() || at < m_wakeAt)
    {
        m_wake.Cancel();
        m_wakeAt = at;
        const uint64_t now = Simulator::Now().GetNanoSeconds() - m_began;
        m_wake = Simulator::Schedule(NanoSeconds(at > now ? at - now : 0), &AccessPoint::Wake, this);
    }
}

void
AccessPoint::Wake()
{
    auto aps = Use();
    if (!aps)
    {
        return;
    }
    // Also at a time that it has: what is due then is done.
    if (aps_advance(aps, aps_now(aps)) != APS_OK)
    {
        Fail(aps_error(aps));
        return;
    }
    Settle();
}

void
AccessPoint::Send(Port& port, const uint8_t* frame, size_t length)
{
    port.allowed -= port.allowed > 0;
    if (length < HEADER)
    {
        return;
    }
    Mac48Address to;
    Mac48Address from;
    to.CopyFrom(frame);
    from.CopyFrom(frame + ADDRESS);
    const uint16_t protocol = frame[2 * ADDRESS] << 8 | frame[2 * ADDRESS + 1];
    port.sent++;
    // A new packet: what ns-3 knows of one beside its bytes (tags, an id) does not cross a switch.
    auto packet = Create<Packet>(frame + HEADER, length - HEADER);
    if (!port.device->SendFrom(packet, from, to, protocol))
    {
        port.refused++;
    }
    if (port.limit && !port.refill.IsPending() && GetRoom(port) > port.allowed)
    {
        // It went where no queue shows it: nobody else would say that there is room.
        port.refill = Simulator::ScheduleNow(&AccessPoint::Refill, this, static_cast<size_t>(&port - m_ports.data()));
    }
}

uint32_t
AccessPoint::GetRoom(const Port& port) const
{
    uint32_t held = 0;
    for (const auto& queue : port.queues)
    {
        held += queue->GetNPackets();
    }
    return port.limit > held ? port.limit - held : 0;
}

void
AccessPoint::Changed(size_t index, uint32_t before, uint32_t now)
{
    // The device is at work: not before it is done.
    if (now < before && index < m_ports.size() && !m_ports[index].refill.IsPending())
    {
        m_ports[index].refill = Simulator::ScheduleNow(&AccessPoint::Refill, this, index);
    }
}

void
AccessPoint::Refill(size_t index)
{
    auto& port = m_ports[index];
    auto aps = Use();
    const uint32_t room = GetRoom(port);
    if (!aps || room <= port.allowed)
    {
        return;
    }
    const uint32_t more = room - port.allowed;
    port.allowed = room;
    if (aps_allow(aps, index + 1, more) != APS_OK)
    {
        Fail(aps_error(aps));
        return;
    }
    Settle();
}

void
AccessPoint::Listen(uint64_t stream, void (*told)())
{
    Forget(m_stream);
    m_stream = stream;
    m_told = told;
    m_listens = true;
    Settle();
}

void
AccessPoint::Forget(uint64_t stream)
{
    if (stream == m_stream)
    {
        m_listens = false;
        m_told = nullptr;
        m_telling.Cancel();
        m_messages.clear();
    }
}

bool
AccessPoint::Take(std::string& message, bool& ended)
{
    if (m_messages.empty())
    {
        return false;
    }
    message = std::move(m_messages.front().bytes);
    ended = m_messages.front().ended;
    m_messages.pop_front();
    return true;
}

} // namespace ns3
