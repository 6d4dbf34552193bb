"""GANs, variational autoencoders, diffusion, reinforcement learning, text that is generated between steps."""

import torch
from torch import nn
from torch.distributions import Categorical, Normal, kl_divergence
from torch.nn import functional as F

from tests.loops.ordinary.catalogue import FOREACH, GUESSED, HOST, ordinary, with_outside
from tests.loops.ordinary.small import mlp


def generator():
    return nn.Sequential(nn.Linear(16, 128), nn.LeakyReLU(0.2), nn.Linear(128, 64), nn.Tanh())


def critic():
    return nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))


@ordinary(differs=FOREACH)
def gan(device):
    G, D = generator().to(device), critic().to(device)
    optimizer_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    for _ in range(3):
        real = torch.randn(32, 64).to(device)
        ones, zeros = torch.ones(32, 1, device=device), torch.zeros(32, 1, device=device)
        fake = G(torch.randn(32, 16, device=device))
        optimizer_d.zero_grad()
        loss_d = criterion(D(real), ones) + criterion(D(fake.detach()), zeros)
        loss_d.backward()
        optimizer_d.step()
        optimizer_g.zero_grad()
        loss_g = criterion(D(fake), ones)
        loss_g.backward()
        optimizer_g.step()
        yield loss_d.item() + loss_g.item()


@ordinary()
def wgan_gradient_penalty(device):
    G, D = generator().to(device), critic().to(device)
    optimizer_d = torch.optim.SGD(D.parameters(), lr=1e-3)
    for _ in range(3):
        real = torch.randn(256, 64).to(device)
        fake = G(torch.randn(256, 16, device=device)).detach()
        alpha = torch.rand(256, 1, device=device)
        mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        score = D(mixed)
        gradients = torch.autograd.grad(score, mixed, torch.ones_like(score), create_graph=True, retain_graph=True)[0]
        penalty = ((gradients.norm(2, dim=1) - 1) ** 2).mean()
        loss = D(fake).mean() - D(real).mean() + 10 * penalty
        optimizer_d.zero_grad()
        loss.backward()
        optimizer_d.step()
        yield loss.item()


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(64, 2 * 16), nn.Linear(16, 64)

    def forward(self, x):
        mean, log_var = self.encoder(x).chunk(2, dim=-1)
        posterior = Normal(mean, (0.5 * log_var).exp())
        return self.decoder(posterior.rsample()), posterior


@ordinary()
def vae(device):
    model = VAE().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    prior = Normal(torch.zeros(16, device=device), torch.ones(16, device=device))
    for _ in range(3):
        x = torch.rand(256, 64).to(device)
        out, posterior = model(x)
        loss = F.mse_loss(out, x, reduction="sum") + kl_divergence(posterior, prior).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss / len(x)


@ordinary()
def reinforce(device):
    policy = mlp().to(device)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
    for _ in range(3):
        log_probs, rewards = [], []
        state = torch.randn(64)
        for _ in range(5):
            distribution = Categorical(logits=policy(state.to(device)))
            action = distribution.sample()
            log_probs.append(distribution.log_prob(action))
            rewards.append(1.0 if action.item() == 3 else -0.1)
            state = torch.randn(64)
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0).to(device)
        returns = (returns - returns.mean()) / (returns.std() + 1e-8)
        loss = -(torch.stack(log_probs) * returns).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


@ordinary(differs=FOREACH)
def ppo(device):
    actor, value = mlp().to(device), nn.Linear(64, 1).to(device)
    optimizer = torch.optim.Adam([*actor.parameters(), *value.parameters()], lr=3e-4)
    for _ in range(3):
        states = torch.randn(64, 64, device=device)
        with torch.no_grad():
            old = Categorical(logits=actor(states))
            actions = old.sample()
            old_log_probs, values = old.log_prob(actions), value(states).squeeze(-1)
        returns = torch.randn(64, device=device)
        advantages = returns - values
        for _ in range(2):
            for indices in torch.randperm(64).split(16):
                new = Categorical(logits=actor(states[indices]))
                ratio = (new.log_prob(actions[indices]) - old_log_probs[indices]).exp()
                clipped = ratio.clamp(0.8, 1.2) * advantages[indices]
                loss = -torch.min(ratio * advantages[indices], clipped).mean()
                loss = loss + 0.5 * F.mse_loss(value(states[indices]).squeeze(-1), returns[indices])
                loss = loss - 0.01 * new.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
                optimizer.step()
        yield loss.item()


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(4, channels), nn.Conv2d(channels, channels, 3, padding=1)
        self.time = nn.Linear(32, channels)

    def forward(self, x, t):
        return x + self.conv(F.silu(self.norm(x))) + self.time(t)[:, :, None, None]


class DenoisingUnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.down = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList([Block(16), Block(16), Block(32)])
        self.outside = nn.Conv2d(32, 3, 3, padding=1)

    def forward(self, x, t):
        frequencies = torch.exp(-torch.arange(16, device=t.device) / 16 * 9.2)
        angles = t[:, None].float() * frequencies[None]
        t = torch.cat([angles.sin(), angles.cos()], dim=-1)
        high = self.blocks[0](self.inside(x), t)
        low = self.blocks[1](self.down(high), t)
        low = F.interpolate(low, scale_factor=2, mode="nearest")
        return self.outside(self.blocks[2](torch.cat([high, low], dim=1), t))


@ordinary(differs=HOST)
def diffusion(device):
    betas = torch.linspace(1e-4, 0.02, 2000)
    alphas_bar = torch.cumprod(1.0 - betas, dim=0)
    assert 0 < alphas_bar[-1].item() < 1
    root, rest = alphas_bar.sqrt().to(device), (1.0 - alphas_bar).sqrt().to(device)
    model = DenoisingUnet().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        x = torch.randn(4, 3, 16, 16).to(device)
        t = torch.randint(0, 2000, (4,), device=device).long()
        noise = torch.randn_like(x)
        noisy = root.gather(-1, t).reshape(4, 1, 1, 1) * x + rest.gather(-1, t).reshape(4, 1, 1, 1) * noise
        loss = F.mse_loss(model(noisy, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


@with_outside(differs=HOST)
def diffusion_schedule_outside():
    betas = torch.linspace(1e-4, 0.02, 2000)
    alphas_bar = torch.cumprod(1.0 - betas, dim=0)

    def train(device):
        model = nn.Linear(64, 64).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(3):
            t = torch.randint(0, 2000, (128,))
            keep = alphas_bar[t].sqrt()[:, None].to(device)
            noise = torch.randn(128, 64, device=device)
            loss = F.mse_loss(model(keep * torch.ones(128, 64, device=device) + (1 - keep**2).sqrt() * noise), noise)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss

    return train, (betas, alphas_bar)


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 64), nn.Linear(64, 50)

    def forward(self, tokens):
        return self.head(self.embedding(tokens).cumsum(dim=1))

    @torch.no_grad()
    def generate(self, tokens, eos=0, max_len=12):
        done = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
        while not done.all() and tokens.shape[1] < max_len:
            new = self(tokens)[:, -1].argmax(-1)
            new = torch.where(done, eos, new)
            tokens = torch.cat([tokens, new[:, None]], dim=1)
            done |= new == eos
        return tokens


@ordinary()
def text_generated_between_steps(device):
    model = TinyLM().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        tokens = torch.randint(1, 50, (8, 65)).to(device)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.eval()
        text = " ".join(str(token) for token in model.generate(tokens[:1, :4])[0].tolist())
        assert text
        model.train()
        yield loss


@ordinary(differs=GUESSED)
def generation_until_all_are_done(device):
    model = TinyLM().to(device)
    tokens = torch.randint(1, 50, (4, 4)).to(device)
    unfinished = torch.ones(4, dtype=torch.long, device=device)
    steps = 0
    while unfinished.max() != 0:
        new = model(tokens)[:, -1].argmax(-1)
        new = new * unfinished
        unfinished = unfinished.mul((new != 0).long())
        if steps >= 10:
            unfinished.zero_()
        steps += 1
    loss = model(tokens).square().mean()
    loss.backward()
    yield loss


@ordinary(refused="end", differs=GUESSED)
def generation_without_a_limit(device):
    """It ends by chance alone: one token of five is the last."""
    embedding, head = nn.Embedding(5, 64).to(device), nn.Linear(64, 5).to(device)
    for _ in range(3):
        tokens = torch.randint(1, 5, (4, 1)).to(device)
        done = torch.zeros(4, dtype=torch.bool, device=device)
        while not done.all():
            new = torch.multinomial(head(embedding(tokens[:, -1])).softmax(-1), 1)
            tokens = torch.cat([tokens, new], dim=1)
            done = done | (new[:, 0] == 4)
        loss = head(embedding(tokens)).square().mean()
        loss.backward()
        yield loss


@ordinary()
def sampled_with_temperature(device):
    model = TinyLM().to(device)
    for _ in range(3):
        tokens = torch.randint(1, 50, (8, 65)).to(device)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        model.zero_grad()
        context = torch.zeros((1, 1), dtype=torch.long, device=device)
        with torch.inference_mode():
            for _ in range(8):
                logits = model(context)[:, -1, :] / 0.8
                top, _ = torch.topk(logits, 5)
                logits[logits < top[:, [-1]]] = -float("inf")
                context = torch.cat((context, torch.multinomial(logits.softmax(-1), num_samples=1)), dim=1)
        assert len(context[0].tolist()) == 9
        yield loss
