"""Floating-point operations of a training step, by formula.

Counts what the equations need, for the utilisation of a device. Recomputed
layers (remat), pieces, casts, norms, softmax and other elementwise work do not
count. Padding does: the compiled step computes it. A multiply-add is 2.

A product of m parameters with a token takes 2m forwards and 4m backwards (the
gradients of the token and of the parameters): 6 m per token (Kaplan et al.
2020, section 2.1). With the letters of `models.encoder_decoder`, E encoder and
M decoder layers, HK = H x K, G hidden units in the decoder (BART; else F):

  dense       6 [ B L (E (m + f D F) + M 2 D HK)
                + B T (M (6 D HK + f D G) + D V) ]
              m of the token mixer: LOCOST 3 D^2 (key, gate, output; 2 without
              gating), attention 4 D HK; f 3 (gated; 2 else); the M 2 D HK per
              input token are the keys and values of cross-attention, the 6 per
              target token the other projections of both attentions
  attention   12 M B T (T + L) HK: scores and weighted values are 2 HK each
              per query and key, 3 times (the causal half is computed too); an
              encoder with attention has 12 E B L S HK more, where a query is
              multiplied with S keys
  kernels     12 E C D N L: K = 2 Re sum w z^l as real products over 2N
              numbers per lag, 3 times, for C directions, once for the batch.
              Their tables grow with sqrt(L) and are left out
  dense, attention of a copy head (`copy_head`), c wide: 6 B (L + T) D c, and
              6 B T L c: scores alone
  selector    SimCAS's actor, forwards only: `simcas.SimCASConfig`
  transforms  E D [2 (2 B + 1) 2.5 n log2 n + 9 B n]: a real FFT of size n is
              2.5 n log2 n. Per channel: one of the input and one of the output
              per document and one of the kernels forwards, as many backwards;
              the product of n / 2 complex numbers is 3 n per document, 3 times.
              Matrix products: those of `matrix_transform`, in place of FFTs
"""


def train_step(config, batch, length, targets, pages=1):
  """Returns the operations of one step, all devices together, by part.

  Parts are dense, attention, and those of the model: kernels and transforms
  (LOCOST), selector (SimCAS).

  Args:
    batch: B, documents.
    length, targets: L and T, tokens of a document, padding included.
    pages: P; B P pages of L tokens are read, and decoded as the model does.
  """
  c, B, L, T = config, batch, length, targets
  D, HK = c.d_model, c.num_heads * c.d_kv
  E, M = c.num_layers, c.num_decoder_layers
  products = 3 if c.feed_forward.startswith('gated-') else 2
  written = products * D * c.decoder_d_ff
  per_input = E * products * D * c.d_ff + M * 2 * D * HK
  per_target = M * (6 * D * HK + written)
  rows, read = c.decoder_rows(pages, L)
  dense = pages * L * per_input + T * (rows * per_target + D * c.vocab_size)
  parts = {
      'dense': 6.0 * B * dense,
      'attention': 12.0 * M * B * rows * T * (T + read) * HK,
  }
  if c.copy:
    parts['dense'] += 6.0 * B * (pages * L + T) * D * c.copy_dim
    parts['attention'] += 6.0 * B * T * pages * L * c.copy_dim
  for part, operations in c.mixer_flops(B * pages, L).items():
    parts[part] = parts.get(part, 0.0) + E * operations
  return parts | c.further_flops(B, pages, L)


def of_step(model, inputs, targets):
  """All operations of a step; shapes of inputs and of targets, (B, T)."""
  batch, *pages, length = inputs
  parts = train_step(model.config, batch, length, targets[1], *pages)
  return sum(parts.values())
