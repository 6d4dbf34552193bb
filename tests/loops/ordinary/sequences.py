"""Recurrent nets, sparse and bagged embeddings, Fourier layers, choosing by number and by mask."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from tests.loops.ordinary.catalogue import CHOSEN, FOREACH, GUESSED, HOST, RNN, ordinary


@ordinary(differs=RNN)
def lstm(device):
    embedding, model, head = nn.Embedding(50, 16), nn.LSTM(16, 32, num_layers=2, batch_first=True), nn.Linear(32, 50)
    for module in (embedding, model, head):
        module.to(device)
    optimizer = torch.optim.Adam([*embedding.parameters(), *model.parameters(), *head.parameters()])
    hidden = None
    for _ in range(3):
        text = torch.randint(0, 50, (4, 17)).to(device)
        if hidden is not None:
            hidden = tuple(state.detach() for state in hidden)
        out, hidden = model(embedding(text[:, :-1]), hidden)
        loss = F.cross_entropy(head(out).transpose(1, 2), text[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5)
        optimizer.step()
        yield loss.item()


@ordinary(differs=RNN)
def gru_of_packed_sequences(device):
    model, head = nn.GRU(8, 16, batch_first=True, bidirectional=True).to(device), nn.Linear(32, 2).to(device)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    for _ in range(3):
        sentences = [torch.randn(length, 8) for length in (9, 4, 7, 2)]
        lengths = torch.tensor([len(sentence) for sentence in sentences])
        batch = pad_sequence(sentences, batch_first=True).to(device)
        packed = pack_padded_sequence(batch, lengths, batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(model(packed)[0], batch_first=True)
        loss = F.cross_entropy(head(out.mean(1)), torch.tensor([0, 1, 0, 1]).to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@ordinary(differs=RNN)
def bidirectional_rnn(device):
    model = nn.RNN(8, 16, num_layers=2, dropout=0.2, bidirectional=True).to(device)
    for _ in range(3):
        out, last = model(torch.randn(12, 4, 8, device=device))
        loss = out.square().mean() + last.square().mean()
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary(differs="a card has a kernel for a whole LSTM cell")
def lstm_cells(device):
    cell, head = nn.LSTMCell(8, 64).to(device), nn.Linear(64, 8).to(device)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
    for _ in range(3):
        h, c = torch.zeros(32, 64, device=device), torch.zeros(32, 64, device=device)
        loss, x = 0, torch.randn(32, 8, device=device)
        for _ in range(6):
            h, c = cell(x, (h, c))
            x = head(h)
            loss += x.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@ordinary(differs="a sparse gradient's sizes depend on how it is summed")
def sparse_embedding(device):
    embedding, head = nn.Embedding(1000, 32, sparse=True).to(device), nn.Linear(32, 5).to(device)
    sparse = torch.optim.SparseAdam(embedding.parameters(), lr=1e-3)
    dense = torch.optim.Adam(head.parameters(), lr=1e-3)
    for _ in range(3):
        words, y = torch.randint(0, 1000, (16, 8)).to(device), torch.randint(0, 5, (16,)).to(device)
        loss = F.cross_entropy(head(embedding(words).mean(1)), y)
        sparse.zero_grad()
        dense.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()
        yield loss


@ordinary(differs="a sparse gradient's sizes depend on how it is summed", warns="Sparse invariant checks")
def sparse_bags(device):
    tables = nn.ModuleList(nn.EmbeddingBag(rows, 16, sparse=True, padding_idx=0) for rows in (100, 1000)).to(device)
    head = nn.Linear(32, 1).to(device)
    optimizer = torch.optim.Adagrad([*tables.parameters(), *head.parameters()], lr=0.1)
    for _ in range(3):
        for _ in range(2):
            clicks = torch.randint(0, 100, (64, 8)).to(device)
            loss = head(torch.cat([table(clicks) for table in tables], 1)).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        yield loss


@ordinary(refused="works on a sparse tensor, which cannot be predicted")
def graph_convolution(device):
    edges = torch.randint(0, 50, (2, 200))
    graph = torch.sparse_coo_tensor(edges, torch.ones(200), (50, 50), check_invariants=False).to(device)
    layer, nodes = nn.Linear(8, 8).to(device), torch.randn(50, 8).to(device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        loss = torch.sparse.mm(graph, layer(nodes)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@ordinary(differs="a card's embedding_bag keeps other index tensors")
def embedding_bag(device):
    model = nn.EmbeddingBag(500, 32, mode="mean").to(device)
    head = nn.Linear(32, 4).to(device)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=1.0)
    for _ in range(3):
        text, offsets = torch.randint(0, 500, (40,)).to(device), torch.tensor([0, 7, 19, 30]).to(device)
        loss = F.cross_entropy(head(model(text, offsets)), torch.tensor([0, 1, 2, 3], device=device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


class Fourier(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8, 9, dtype=torch.cfloat) * 0.02)

    def forward(self, x):
        spectrum = torch.fft.rfft(x, norm="ortho")
        out = torch.zeros_like(spectrum)
        out[..., :9] = torch.einsum("bix,iox->box", spectrum[..., :9], self.weight)
        return torch.fft.irfft(out, n=x.shape[-1], norm="ortho")


@ordinary(differs="cuFFT's and the CPU's transforms copy at other places")
def fourier_layer(device):
    model = nn.Sequential(Fourier(), nn.GELU(), Fourier()).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(3):
        x = torch.randn(4, 8, 64, device=device)
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@ordinary(differs="cuFFT's and the CPU's transforms copy at other places")
def spectrogram_loss(device):
    model = nn.Conv1d(1, 1, 9, padding=4).to(device)
    window = torch.hann_window(64).to(device)
    for _ in range(3):
        sound = torch.randn(2, 1, 512, device=device)
        options = {"n_fft": 64, "hop_length": 16, "window": window, "return_complex": True}
        one, two = torch.stft(model(sound)[:, 0], **options), torch.stft(sound[:, 0], **options)
        loss = (one.abs() - two.abs()).abs().mean()
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary()
def topk_of_fixed_size(device):
    scores, head = nn.Linear(32, 1).to(device), nn.Linear(32, 8).to(device)
    for _ in range(3):
        x = torch.randn(8, 64, 32, device=device)
        kept = scores(x).squeeze(-1).topk(16, dim=1).indices
        chosen = torch.gather(x, 1, kept[..., None].expand(-1, -1, 32))
        values, order = head(chosen).sort(dim=1, descending=True)
        loss = values[:, :4].mean() + order.float().mean() * 0
        loss.backward()
        scores.zero_grad()
        head.zero_grad()
        yield loss


@ordinary(differs=CHOSEN)
def boolean_mask(device):
    model = nn.Linear(16, 4).to(device)
    for _ in range(3):
        x, y = torch.randn(32, 16, device=device), torch.randint(0, 4, (32,), device=device)
        keep = y > 1
        loss = F.cross_entropy(model(x)[keep], y[keep])
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary(differs=CHOSEN)
def masked_select(device):
    model = nn.Linear(16, 16).to(device)
    for _ in range(3):
        out = model(torch.randn(32, 16, device=device))
        loss = torch.masked_select(out, out > 0).mean()
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary(differs=CHOSEN)
def nonzero(device):
    model = nn.Linear(16, 16).to(device)
    for _ in range(3):
        out = model(torch.randn(32, 16, device=device))
        loss = out[out.sum(1).gt(0).nonzero().squeeze(-1)].square().sum()
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary(differs=CHOSEN)
def unique(device):
    embedding = nn.Embedding(100, 16).to(device)
    for _ in range(3):
        words, places = torch.randint(0, 100, (64,), device=device).unique(return_inverse=True)
        loss = embedding(words)[places].square().mean()
        loss.backward()
        embedding.zero_grad()
        yield loss


@ordinary(differs=HOST)
def chosen_on_the_host(device):
    """Masks and uniques of host tensors are known to a prediction."""
    model = nn.Linear(16, 4).to(device)
    for step in range(3):
        x, y = torch.randn(32, 16), torch.arange(32) % 4
        keep = y > step
        words, counts = y[keep].unique(return_counts=True)
        assert len(words) == 3 - step
        assert counts.sum() == keep.sum()
        x, y = x[keep].to(device), y[keep].to(device)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary(differs=FOREACH)
def masked_assignment(device):
    """A mask on the card that only says where to write has a result of known size."""
    model = nn.Linear(64, 64).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        x = torch.randn(32, 64, device=device)
        x[x < 0] = 0
        hidden = torch.rand(32, 64, device=device) < 0.15
        out = model(torch.where(hidden, torch.zeros_like(x), x))
        loss = ((out - x) ** 2 * hidden).sum() / hidden.sum().clamp(min=1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@ordinary(differs=CHOSEN)
def masked_language_model(device):
    embedding, head = nn.Embedding(50, 32).to(device), nn.Linear(32, 50).to(device)
    for _ in range(3):
        words = torch.randint(1, 50, (4, 32)).to(device)
        labels = words.clone()
        hidden = torch.bernoulli(torch.full(labels.shape, 0.15, device=device)).bool()
        labels[~hidden] = -100
        words[hidden] = 0
        loss = F.cross_entropy(head(embedding(words))[hidden], labels[hidden])
        loss.backward()
        embedding.zero_grad()
        head.zero_grad()
        yield loss


@ordinary(refused="nested", differs=GUESSED, warns="The PyTorch API of nested tensors")
def jagged_nested_tensors(device):
    model, head = nn.Linear(16, 32).to(device), nn.Linear(32, 1).to(device)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    for _ in range(3):
        parts = [torch.randn(length, 16, device=device) for length in (5, 9, 3)]
        batch = torch.nested.nested_tensor(parts, layout=torch.jagged)
        out = head(F.relu(model(batch)))
        loss = out.values().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss
