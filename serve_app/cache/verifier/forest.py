"""A trained forest of decision trees, run by ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAF = -1

ML_OPSET = 3
"""The last version of ai.onnx.ml in which a tree's nodes are plain lists."""

OPSET = 17
IR_VERSION = 8
"""The version of ``OPSET``: a runtime refuses a file format that is newer than itself."""


@dataclass(frozen=True)
class Forest:
    """The nodes of every tree one after the other; a left child follows its parent.

    ``roots`` [trees]. By node: ``feature`` (``LEAF``: none), ``threshold`` (left if the value is at most
    that), ``right`` (the other child), ``value`` (a leaf's probability).
    """

    roots: NDArray[np.int32]
    feature: NDArray[np.int16]
    threshold: NDArray[np.float32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]

    def probability(self, features: NDArray[np.float32]) -> float:
        """The mean of the trees; ``features`` [n] are in the order of training."""
        (found,) = self._session.run(None, {"features": features[None]})
        return float(found[0, 0])

    @cached_property
    def _session(self) -> Any:
        # Imported here, because building the graph of deployments does not need it (0.2 s).
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # waking others takes longer
        model = self._model().SerializeToString()
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def _model(self) -> Any:
        """One operator: https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsembleRegressor.html"""
        from onnx import TensorProto, helper

        nodes = np.arange(len(self.feature))
        tree = np.searchsorted(self.roots, nodes, side="right") - 1
        place = nodes - self.roots[tree]
        is_leaf = self.feature == LEAF
        ensemble = helper.make_node(
            "TreeEnsembleRegressor",
            ["features"],
            ["probability"],
            domain="ai.onnx.ml",
            n_targets=1,
            aggregate_function="AVERAGE",
            nodes_treeids=tree.tolist(),
            nodes_nodeids=place.tolist(),
            nodes_modes=np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist(),
            nodes_featureids=np.where(is_leaf, 0, self.feature).tolist(),
            nodes_values=self.threshold.tolist(),
            nodes_truenodeids=np.where(is_leaf, 0, place + 1).tolist(),
            nodes_falsenodeids=np.where(is_leaf, 0, self.right - self.roots[tree]).tolist(),
            target_treeids=tree[is_leaf].tolist(),
            target_nodeids=place[is_leaf].tolist(),
            target_ids=np.zeros(is_leaf.sum(), np.int64).tolist(),
            target_weights=self.value[is_leaf].tolist(),
        )
        graph = helper.make_graph(
            [ensemble],
            "forest",
            [helper.make_tensor_value_info("features", TensorProto.FLOAT, [1, None])],
            [helper.make_tensor_value_info("probability", TensorProto.FLOAT, [1, 1])],
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
