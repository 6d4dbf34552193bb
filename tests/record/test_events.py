"""The allocator's record, distilled: from what PyTorch gives to what the replay reads."""

from tests.allocator.test_real_traces import replay
from tests.record.events import distill, label

MIB = 2**20
BASE = 0x7F0000000000


def frames(*names):
    return [{"name": name, "filename": "", "line": 0} for name in names]


MM = "at::_ops::mm::call(at::Tensor const&, at::Tensor const&)"
LINEAR = "at::_ops::linear::call(at::Tensor const&)"
START = [
    {
        "address": BASE,
        "total_size": 2 * MIB,
        "allocated_size": 512,
        "segment_type": "small",
        "blocks": [
            {"address": BASE, "size": 512, "state": "active_allocated"},
            {"address": BASE + 512, "size": 2 * MIB - 512, "state": "inactive"},
        ],
    }
]
LARGE = BASE + 64 * MIB
ENTRIES = [
    {"action": "alloc", "addr": BASE + 512, "size": 100, "frames": frames("malloc", MM, LINEAR)},
    {"action": "segment_alloc", "addr": LARGE, "size": 20 * MIB, "frames": frames("malloc")},
    {"action": "alloc", "addr": LARGE, "size": 3 * MIB, "frames": frames("at::cuda::getNewWorkspace()", MM)},
    {"action": "free_requested", "addr": BASE + 512, "size": 100},
    {"action": "free_completed", "addr": BASE + 512, "size": 100},
    {"action": "snapshot", "addr": 0, "size": 0},
]
END = [
    START[0],
    {"address": LARGE, "total_size": 20 * MIB, "allocated_size": 3 * MIB, "segment_type": "large", "blocks": []},
]


def test_a_trace_can_be_replayed():
    trace = distill(START, ENTRIES, END, "a note")
    allocator, wrong = replay(trace)
    assert wrong == []
    assert allocator.reserved == trace["end"]["reserved"] == 22 * MIB
    assert allocator.allocated == trace["end"]["allocated"] == 3 * MIB + 512


def test_addresses_are_relative_and_labels_tell_who_asked():
    trace = distill(START, ENTRIES, END, "a note")
    assert trace["start"] == {"segments": [[0, 2 * MIB, "small"]], "blocks": [[0, 512]]}
    assert trace["events"] == [
        [0, 512, 100, 0],
        [2, 64 * MIB, 20 * MIB, -1],
        [0, 64 * MIB, 3 * MIB, 1],
        [1, 512, 100, -1],
    ]
    assert trace["ops"] == [["mm", "linear", ""], ["cublas_workspace", "mm", ""]]


def test_backward_is_told_by_its_node():
    node = "torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)"
    assert label(frames("malloc", MM, node)) == ("mm", "mm", "MmBackward0")
    assert label(frames(MM, "torch::autograd::CopyBackwards::apply(x)")) == ("mm", "mm", "CopyBackwards")
    assert label(frames(MM, "torch::autograd::AccumulateGrad::apply(x)")) == ("mm", "mm", "")
    assert label(frames("malloc", "main")) == ("", "", "")
    convolution = "at::_ops::cudnn_convolution::call(x)"
    assert label(frames("at::native::run_conv_plan(x)", convolution))[0] == "cudnn_workspace"


def test_nothing_at_all():
    assert distill([], [], [], "")["events"] == []
