"""Workload and all-reduce cost → buckets → predicted timeline. Pure functions: no MPI, no clock, no files."""

from mgwfbp.schedule.bound import lower_bound_s
from mgwfbp.schedule.cost import AffineCost, Cost, TableCost
from mgwfbp.schedule.fit import AffineFit, fit_affine
from mgwfbp.schedule.policies import POLICIES, compared, find_policy, make_schedule, policy
from mgwfbp.schedule.predict import Message, Prediction, predict
from mgwfbp.schedule.workload import Bucket, LayerProfile, Schedule, Workload, schedule_from_cuts, unmerged

__all__ = [
    "POLICIES",
    "AffineCost",
    "AffineFit",
    "Bucket",
    "Cost",
    "LayerProfile",
    "Message",
    "Prediction",
    "Schedule",
    "TableCost",
    "Workload",
    "compared",
    "find_policy",
    "fit_affine",
    "lower_bound_s",
    "make_schedule",
    "policy",
    "predict",
    "schedule_from_cuts",
    "unmerged",
]
