from sklearn.utils.estimator_checks import parametrize_with_checks

from cofactor import FederatedNMF


@parametrize_with_checks(
    [FederatedNMF(random_state=0), FederatedNMF(2, method="oneshot"), FederatedNMF(method="fnmf-lap", rounds=3)]
)
def test_estimator_follows_the_scikit_learn_rules(estimator, check):
    check(estimator)
