"""The Trainer of Hugging Face: it takes the process group that is there when its arguments are made.

    cohort run -n 2 -- python transformers_trainer.py cohort
"""
import sys
import tempfile

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed


class Tokens(torch.utils.data.Dataset):
    """Sequences that count upwards from a random start."""

    def __init__(self, count, length=16, words=64):
        starts = torch.randint(words, (count, 1), generator=torch.Generator().manual_seed(3))
        self.tokens = (starts + torch.arange(length)) % words

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class Losses(TrainerCallback):
    def on_log(self, arguments, state, control, logs=None, **_):
        if state.is_world_process_zero and "loss" in logs:
            print("loss", repr(logs["loss"]), repr(logs["grad_norm"]), flush=True)


def main(backend):
    dist.init_process_group(backend)  # before TrainingArguments, whose own ddp_backend knows a fixed list of names
    set_seed(7)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, use_cpu=True, per_device_train_batch_size=8, gradient_accumulation_steps=2,
                                      num_train_epochs=1, learning_rate=1e-2, logging_steps=1, save_steps=4, report_to=[],
                                      disable_tqdm=True)
        trainer = Trainer(model, arguments, train_dataset=Tokens(256), eval_dataset=Tokens(40), callbacks=[Losses()])
        trainer.train()
        assert arguments.world_size == 2 and dist.get_backend() == backend
        loss = trainer.evaluate()["eval_loss"]  # gathered from both ranks
        if trainer.is_world_process_zero():
            print("evaluation", repr(loss), flush=True)
        dist.barrier()  # the folder goes with the first rank that is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
