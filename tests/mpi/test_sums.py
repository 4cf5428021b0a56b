"""Every way to sum, on the ranks that there are: against float64, to the last bit where the order is ours."""

from __future__ import annotations

import json
import tempfile
import time

import numpy as np
import pytest

from mgwfbp.comm import HostTransport, World, measure_all_reduce, pieces
from mgwfbp.comm.shards import bounds
from mgwfbp.comm.sums.bf16 import to_bits, to_values
from mgwfbp.comm.sums.chosen import Chosen, fastest, label
from mgwfbp.comm.transports.device import StagedTransport
from mgwfbp.comm.transports.open import open_transport, own_transport
from mgwfbp.errors import SharedError
from mgwfbp.files import json_text
from mgwfbp.runs.config import Config
from mgwfbp.runs.start import train
from mgwfbp.schedule import AffineCost, Network
from mgwfbp.schedule.cost import with_half_the_bytes
from tests.cuda_on_host import to_device, to_host
from tests.streams_on_host import LazyCupy

WAYS = [("mpi", "fp32"), ("direct", "fp32"), ("direct", "bf16")]
LENGTHS = [0, 1, 3, 64, 1000, 4097]
EVERY_MODE = ("wfbp", "single", "pipelined", "sharded", "dear:8kB")


def given(rank, length):
    """What a rank adds: all magnitudes, subnormal ones, zeros of both signs."""
    rng = np.random.default_rng([rank, length])
    values = (rng.normal(size=length) * 2.0 ** rng.integers(-149, 20, length)).astype(np.float32)
    values[::7], values[3::11] = 0.0, -0.0
    return values


def rounded(values):
    bits, result = np.empty(len(values), np.uint16), np.empty_like(values)
    to_bits(values, bits)
    to_values(bits, result)
    return result


def in_rank_order(size, length, wire):
    """The sum as it is promised: float32, rank after rank; with bf16 what is added and the sum are rounded."""
    change = rounded if wire == "bf16" else lambda values: values
    total = change(given(0, length))
    for rank in range(1, size):
        total = total + change(given(rank, length))
    return change(total)


def same_bits(one, other):
    return np.array_equal(one.view(np.uint32), other.view(np.uint32))


@pytest.fixture(params=["host", "staged"])
def transport(request, world):
    if request.param == "host":
        yield HostTransport(world.comm.Dup())
    else:
        yield StagedTransport(world.comm.Dup(), LazyCupy(), max(LENGTHS))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("algorithm", "wire"), WAYS)
def test_sums(world, transport, algorithm, wire, length):
    transport.take(algorithm, wire)
    transport.most = 1000  # several pieces in the longest
    staged = isinstance(transport, StagedTransport)
    convert, back = (to_device, to_host) if staged else (np.asarray, np.asarray)
    exact = sum(given(rank, length).astype(float) for rank in range(world.size))
    size_of_terms = sum(np.abs(given(rank, length)).astype(float) for rank in range(world.size))
    whole, halves = (convert(given(world.rank, length)) for _ in range(2))
    transport.all_reduce(whole)
    transport.reduce_scatter(halves)
    own = np.concatenate([np.arange(start + edges[world.rank], start + edges[world.rank + 1])
        for start in range(0, length, 1000)
        for edges in [bounds(min(1000, length - start), world.size)]] or [np.arange(0)]).astype(int)  # fmt: skip
    scattered = back(halves).copy()
    transport.all_gather(halves)
    whole, halves = back(whole), back(halves)
    relative, smallest = (2.0**-22, 2.0**-148) if wire == "fp32" else (2.0**-7, 2.0**-132)
    assert (np.abs(whole - exact) <= size_of_terms * relative + world.size * smallest).all()
    rest = np.setdiff1d(np.arange(length), own)
    assert same_bits(scattered[rest], given(world.rank, length)[rest])  # reduce-scatter leaves the others' parts
    if algorithm == "direct":
        assert same_bits(whole, in_rank_order(world.size, length, wire))
        assert same_bits(halves, whole)  # so a sharded schedule has the same weights
    everyone = world.comm.allgather(whole.tobytes())
    assert len(set(everyone)) == 1


@pytest.mark.parametrize(("algorithm", "wire"), WAYS)
def test_what_is_not_finite_arrives(world, algorithm, wire):
    transport = HostTransport(world.comm.Dup())
    transport.take(algorithm, wire)
    array = np.ones(100, np.float32)
    if world.rank == world.size - 1:
        array[[3, 50, 99]] = np.inf, np.nan, -np.inf
        array[7:8].view(np.uint32)[:] = 0x7FFFFFFF  # a NaN whose lower bits carry
    transport.all_reduce(array)
    assert np.array_equal(array[[3, 99]], [np.inf, -np.inf])
    assert np.isnan(array[[7, 50]]).all()
    assert np.isfinite(np.delete(array, [3, 7, 50, 99])).all()


class Slow:
    """A way that takes its time above 10,000 bytes, and another below."""

    wire = "fp32"

    def __init__(self, inner, name, above, below):
        self.inner, self.name, self.above, self.below = inner, name, above, below

    def __getattr__(self, call):
        def called(part):
            time.sleep(self.above if part.nbytes > 10_000 else self.below)
            getattr(self.inner, call)(part)

        return called


def test_each_size_is_served_by_the_fastest(world):
    transport = HostTransport(world.comm.Dup())
    inner = transport.sums
    transport.ways = [Slow(inner, "short", 0.02, 0.0), Slow(inner, "long", 0.0, 0.02)]
    network = measure_all_reduce(world, 100_000, transport=transport, halves=True)
    assert isinstance(transport.sums, Chosen)
    assert network.algorithms == ("short",) * 3 + ("long",) * (len(network.nbytes) - 3)
    assert network.summed == "short to 4.1 kB, long above it"
    assert max(network.seconds) < 0.02
    assert set(network.by_algorithm) == {"short", "long"}
    assert len(network.to_dict()["by_algorithm"]["long"]) == len(network.nbytes)


def test_noise_does_not_choose():
    assert fastest([[1.0, 1.0, 1.0], [0.96, 0.9, float("inf")], [0.955, 0.89, 2.0]]) == [0, 1, 0]


def test_auto_measures_what_may_be_taken(world):
    transport, _, network = open_transport(world, 5000, None, algorithm="auto", wire="auto")
    assert [label(way) for way in transport.ways] == ["mpi", "direct", "direct bf16"]
    assert set(network.by_algorithm) == {"mpi", "direct", "direct bf16"}
    assert isinstance(transport.sums, Chosen)
    transport, _, network = open_transport(world, 5000, None, wire="bf16")
    assert set(network.algorithms) == {"direct bf16"}
    assert network.wire == "bf16"
    again = Network.from_dict(json.loads(json_text(network.to_dict())))
    assert with_half_the_bytes(again.cost) == again.cost  # played again it is not halved a second time
    transport, _, network = open_transport(world, 5000, None)
    assert (network.summed, network.wire) == ("mpi", "fp32")


@pytest.mark.parametrize("wire", ["bf16", "auto"])
def test_a_network_that_is_played_takes_half_the_bytes_too(world, wire):
    cost = AffineCost(1e-3, 1e-6)
    transport, planned, _ = open_transport(world, 8000, cost, wire=wire)
    assert planned(4000.0) == pytest.approx(1e-3 + 2e-3)
    scatter, gather = planned.halves
    assert (scatter(4000.0), gather(4000.0)) == pytest.approx((0.5e-3 + 1e-3, 0.5e-3 + 2e-3))
    array = np.full(100, 1 + 2.0**-20, np.float32)
    transport.all_reduce(array)
    assert (array == world.size).all()  # what travels is rounded


def test_what_does_not_go_together_is_said_by_all(world):
    with pytest.raises(SharedError, match="unknown algorithm 'rign'"):
        own_transport(world, 100, np, algorithm="rign")
    with pytest.raises(SharedError, match="ranks differ in their transport.*wire"):
        own_transport(world, 100, np, wire="bf16" if world.rank else "fp32")


def test_pieces_are_measured_by_all_or_none(world, monkeypatch):
    """The variable may be set on one machine only, to what it is without."""
    if world.rank:
        monkeypatch.setenv("MGWFBP_MAX_MESSAGE", str(2**31 - 1))
    with pytest.raises(SharedError, match="ranks differ in their transport.*MGWFBP_MAX_MESSAGE not set"):
        own_transport(world, 100, np, algorithm="auto")


def test_one_rank_sums_nothing(world):
    alone = World(world.comm.Split(world.rank))
    transport, _, network = open_transport(alone, 5000, None, algorithm="auto", wire="auto")
    array = np.ones(100, np.float32)
    transport.all_reduce(array)
    assert (array == 1).all()
    assert network.ranks == 1


def one_way_at_a_time(world):
    """A transport whose long messages take longer than their pieces, as over sockets."""
    transport = HostTransport(world.comm.Dup())
    transport.sums = Slow(transport.sums, "sockets", 0.3, 1e-3)
    return transport


def test_a_long_message_goes_in_the_pieces_that_are_the_fastest(world, monkeypatch):
    monkeypatch.setattr(pieces, "PIECES", (2048,))
    monkeypatch.setattr(pieces, "TRIED_NBYTES", 1 << 15)
    transport = one_way_at_a_time(world)
    pieces.measure_pieces(world, transport, 10**9)
    assert transport.most == 2048
    plain = HostTransport(world.comm.Dup())
    pieces.measure_pieces(world, plain, 1000)  # nothing to cut
    assert plain.most == 2**31 - 1
    monkeypatch.setenv("MGWFBP_MAX_MESSAGE", "5000")
    told = one_way_at_a_time(world)
    pieces.measure_pieces(world, told, 10**9)
    assert told.most == 5000


@pytest.mark.parametrize("wire", ["fp32", "bf16"])
def test_no_schedule_changes_a_bit_where_the_sums_are_direct(world, wire):
    """At any number of ranks; the library's own sums promise it for two."""
    found = set()
    for schedule in ("wfbp", "pipelined", "sharded") if world.size == 2 else EVERY_MODE:  # make test has eight minutes
        options = {"data": "synthetic:8x8x1x4", "iterations": 6, "profile_iterations": 3, "replan": "never"}
        options |= {"threads": 1, "kernels": "numpy", "batch_size": 4, "stall_warn": 0.0}
        with tempfile.TemporaryDirectory() as out:
            config = Config("mlp", out=out, schedule=schedule, algorithm="direct", wire=wire, **options)
            found |= set(train(config, world)["parameters_sha256"])
    assert len(found) == 1
