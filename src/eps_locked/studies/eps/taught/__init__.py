"""Rows taught by written answers and measured by a judge: fact, refusal, sycophancy, em."""
