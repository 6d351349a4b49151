"""What changes a step of training: each a key of a recipe, off by default.

``method_arguments`` (the keys), ``layers`` (rates and freezing by layer), ``regularization`` and
``perturbation`` (R-Drop and SMART), ``averaging`` (of weights), ``adapters`` (LoRA),
``gradient_surgery`` (PCGrad and GradVac).
"""
