// SPDX-License-Identifier: Apache-2.0
// C API of a cell for Python's ctypes (topologies/ns3/cell.py). Each call returns null or false after it has written one
// line into `error`.
#include "cell.h"

#include "access-point.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <string>

namespace
{

void
Tell(char* error, size_t room, const std::string& line)
{
    auto length = std::min(line.size(), room - 1);
    line.copy(error, length);
    error[length] = 0;
}

/// Return the attempt's result; null or false after its error was written.
template <typename Try>
auto
Told(char* error, size_t room, Try attempt) -> decltype(attempt())
{
    try
    {
        return attempt();
    }
    catch (const std::exception& wrong)
    {
        Tell(error, room, wrong.what());
        return {};
    }
}

} // namespace

extern "C"
{
ns3::Cell*
cell_new(const char* const* words, size_t count, char* error, size_t room)
{
    return Told(error, room, [=] {
        ns3::Settings settings(words, count);
        auto cell = std::make_unique<ns3::Cell>(); // which ends its simulation also when it cannot be
        cell->Make(settings);
        return cell.release();
    });
}

bool
cell_add(ns3::Cell* cell, const char* what, const char* const* words, size_t count, char* error, size_t room)
{
    return Told(error, room, [=] {
        ns3::Settings settings(words, count);
        cell->Add(what, settings);
        return true;
    });
}

bool
cell_run(ns3::Cell* cell, double until, char* error, size_t room)
{
    return Told(error, room, [=] {
        cell->Run(until);
        return true;
    });
}

const ns3::CellSample*
cell_samples(const ns3::Cell* cell, size_t* count)
{
    *count = cell->Samples().size();
    return cell->Samples().data();
}

/// The handle of the first of ours, the second; 0: there is none.
uint64_t
cell_access_point(const ns3::Cell* cell, size_t index)
{
    return index < cell->Ours().size() ? cell->Ours()[index]->GetHandle() : 0;
}

void
cell_error(const ns3::Cell* cell, char* error, size_t room)
{
    Tell(error, room, "");
    for (const auto& ours : cell->Ours())
    {
        if (!ours->GetError().empty())
        {
            Tell(error, room, ours->GetError());
            return;
        }
    }
}

void
cell_free(ns3::Cell* cell)
{
    delete cell;
}
}
