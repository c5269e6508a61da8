# SPDX-License-Identifier: BSD-3-Clause
"""Which tests run first for a file, and what the rest is."""

from fnmatch import fnmatch

UNIT, SIMULATION = 'unit-tests', 'sim-tests'

# The first matching pattern decides: tags of the unit tests that are most likely to notice a
# change.
_FIRST = [
    ('ae/*', ['ae']),
    ('conn/rdma/memory/blocks.*', ['blocks']),
    ('conn/rdma/loop/tick_wheel.*', ['ticks']),
    ('conn/rdma/protocol/wire.*', ['wire']),
    ('conn/rdma/protocol/*', ['stream', 'steps']),
    ('conn/rdma/sender.*', ['sender', 'rdma']),
    ('conn/rdma/reader.*', ['reader', 'rdma']),
    ('conn/rdma/*', ['rdma']),
    ('conn/tcp/unix*', ['unix']),
    ('conn/tcp/*', ['tcp', 'unix']),
    ('conn/tls/settings.*', ['options', 'clients', 'reload']),
    ('conn/tls/context*', ['verify', 'names', 'versions', 'resumption']),
    ('conn/tls/engine/files.*', ['verify', 'reload']),
    ('conn/tls/session_store.*', ['resumption']),
    ('conn/tls/ticket_keys.*', ['resumption']),
    ('conn/tls/engine/engine.*', ['close', 'damage', 'messages']),
    ('conn/tls/*', ['close', 'handshake', 'wrap']),
    ('conn/co/*', ['co']),
    ('conn/redial/*', ['redial']),
    ('conn/kit/proxy_header.*', ['proxy-protocol']),
    ('conn/kit/resolver.*', ['resolver']),
    ('conn/url/endpoint.*', ['endpoint']),
    ('conn/url/option*', ['options']),
    ('conn/*', ['conn', 'memory']),
]
_HOST = '~[rdma-device]~[.]'
# Tests that also run over a device, and otherwise over the transports without one.
_OTHERS_TOO = '[group][rdma-device]~[.],[loops][rdma-device]~[.]'
_SMALL_SIMULATION = '~[torture]~[walk]~[costs]~[profiles]'


def first(file):
    """The tests most likely to notice a change of this file: stages, one after the other."""
    tags = next((tags for pattern, tags in _FIRST if fnmatch(file, pattern)), [])
    stages = [[(UNIT, ','.join(f'[{tag}]{_HOST}' for tag in tags))]] if tags else []
    if file.startswith('conn/rdma/'):
        stages.append([(SIMULATION, _SMALL_SIMULATION)])
    return stages


def rest(file):
    """All tests, in parallel, since most of them wait."""
    small = [] if file.startswith('conn/rdma/') else [(SIMULATION, _SMALL_SIMULATION)]
    return [(UNIT, '~[tls]~[conformance]' + _HOST), (UNIT, '[tls]~[conformance]' + _HOST),
            (UNIT, '[conformance]' + _HOST), (UNIT, _OTHERS_TOO), *small, (SIMULATION, '[walk]'),
            (SIMULATION, '[costs],[profiles]'), (SIMULATION, '[torture]')]


def everything(simulation):
    return [part for part in rest('') if simulation or part[0] == UNIT]
