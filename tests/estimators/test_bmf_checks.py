"""scikit-learn's own checks feed real numbers, so they run with a threshold; strict 0/1 input has its own tests."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from cofactor import FederatedBMF


@parametrize_with_checks(
    [
        FederatedBMF(threshold=0.5, random_state=0),
        FederatedBMF(2, threshold=0.5, method="felb", rounds=5, sweeps=1),
        FederatedBMF(threshold=0.5, method="boolean-exact", rounds=5, sweeps=0),
    ]
)
def test_estimator_follows_the_scikit_learn_rules(estimator, check):
    check(estimator)
