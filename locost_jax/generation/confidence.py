"""A model's confidence in a text: the mean log-probability of its tokens."""

import functools

import jax
import jax.numpy as jnp


@functools.partial(jax.jit, static_argnums=0)
def mean_log_probs(
    model, params, inputs, input_mask, targets_in, targets, weights
):
  """(1 / n) sum_t log p(y_t | y_1 .. y_(t-1), x) of each document.

  Args:
    inputs, input_mask: x, [B, L].
    targets_in: what the decoder reads, the start token first: int [B, T].
    targets: y, int [B, T].
    weights: [B, T], 1 at the n tokens that count, 0 at padding.

  Returns:
    float32 [B], in nats.
  """
  logits = model.apply({'params': params}, inputs, targets_in, input_mask)
  log_p = jax.nn.log_softmax(logits.astype(jnp.float32))
  own = jnp.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]
  return (own * weights).sum(-1) / weights.sum(-1)
