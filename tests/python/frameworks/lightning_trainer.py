"""Lightning's Trainer: the backend is an argument of the strategy.

    cohort run -n 2 -- python lightning_trainer.py cohort
"""
import sys

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch.nn.functional import cross_entropy


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 4))

    def training_step(self, batch, index):
        samples, labels = batch
        loss = cross_entropy(self.layers(samples), labels)
        self.log("loss", loss, sync_dist=True, on_step=True)  # averaged over the ranks, by an all-reduce
        return loss

    def validation_step(self, batch, index):
        samples, labels = batch
        self.log("accuracy", (self.layers(samples).argmax(1) == labels).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Losses(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if trainer.is_global_zero:
            print("loss", repr(trainer.callback_metrics["loss"].item()), flush=True)


def main(backend):
    lightning.seed_everything(7)
    samples = torch.randn(512, 20)
    data = torch.utils.data.TensorDataset(samples, (samples @ torch.randn(20, 4)).argmax(1))
    strategy = DDPStrategy(process_group_backend=backend)
    trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy=strategy, max_epochs=2, callbacks=[Losses()], sync_batchnorm=False,
                                logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
    trainer.fit(Classifier(), loader, torch.utils.data.DataLoader(data, batch_size=32))
    assert torch.distributed.get_backend() == backend
    if trainer.is_global_zero:
        print("accuracy", repr(trainer.callback_metrics["accuracy"].item()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
