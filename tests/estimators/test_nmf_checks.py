from sklearn.utils.estimator_checks import parametrize_with_checks

from cofactor import FederatedNMF

NOT_CONVEX = (
    "rows twice are another draw of the start, which may end elsewhere; see test_like_scikit_learn for one start"
)
WEIGHTS = {f"check_sample_weight_equivalence_on_{form}_data": NOT_CONVEX for form in ("dense", "sparse")}


@parametrize_with_checks(
    [FederatedNMF(random_state=0), FederatedNMF(2, method="oneshot"), FederatedNMF(method="fnmf-lap", rounds=3)],
    expected_failed_checks=lambda estimator: WEIGHTS if estimator.method == "fnmf-lap" else {},
)
def test_estimator_follows_the_scikit_learn_rules(estimator, check):
    check(estimator)
