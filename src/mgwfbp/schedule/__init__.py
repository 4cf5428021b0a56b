"""Workload and all-reduce cost → buckets → predicted timeline. Pure functions: no MPI, no clock, no files."""

from mgwfbp.schedule.bound import lower_bound_s
from mgwfbp.schedule.cost import AffineCost, Cost, TableCost, halves
from mgwfbp.schedule.drift import Watch, check_replan
from mgwfbp.schedule.fit import AffineFit, fit_affine
from mgwfbp.schedule.measured import Figures, Interval, IterationTimes, shared_ns, workload_from_times
from mgwfbp.schedule.network import ALGORITHMS, WIRES, Network, network_of
from mgwfbp.schedule.plan import NEEDS_ALL_SUMS, Plan, plan, plan_for, plan_from_dict, untimed
from mgwfbp.schedule.policies import POLICIES, compared, find_policy, make_schedule, policy
from mgwfbp.schedule.predict import PlannedMessage, Prediction, predict
from mgwfbp.schedule.schedule import (
    ALL_REDUCE,
    PIPELINED,
    SHARDED,
    Bucket,
    Schedule,
    schedule_from_cuts,
    unmerged,
)
from mgwfbp.schedule.workload import LayerProfile, Workload, workload_from_dict, workload_to_dict

__all__ = [
    "ALGORITHMS",
    "ALL_REDUCE",
    "NEEDS_ALL_SUMS",
    "PIPELINED",
    "POLICIES",
    "SHARDED",
    "WIRES",
    "AffineCost",
    "AffineFit",
    "Bucket",
    "Cost",
    "Figures",
    "Interval",
    "IterationTimes",
    "LayerProfile",
    "Network",
    "Plan",
    "PlannedMessage",
    "Prediction",
    "Schedule",
    "TableCost",
    "Watch",
    "Workload",
    "check_replan",
    "compared",
    "find_policy",
    "fit_affine",
    "halves",
    "lower_bound_s",
    "make_schedule",
    "network_of",
    "plan",
    "plan_for",
    "plan_from_dict",
    "policy",
    "predict",
    "schedule_from_cuts",
    "shared_ns",
    "unmerged",
    "untimed",
    "workload_from_dict",
    "workload_from_times",
    "workload_to_dict",
]
