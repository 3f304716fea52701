//! Claim: the statistics give the paper's published figures from its published counts.
//!
//! Its sampled lane can be checked only as far as the wins per seed go: the intervals and p-values there need the
//! outcomes game by game, which were not released.

#![allow(clippy::unwrap_used)] // A test may panic.

use proptest::prelude::*;
use serde_json::Value;
use veriharness::stats::paired::{Counts, Pair, cluster_means, differences};
use veriharness::stats::{Interval, bootstrap, holm, mcnemar, proportion, sign_flip};

fn targets() -> Value {
    serde_json::from_str(include_str!("data/paper_targets.json")).unwrap()
}

/// A contrast as published.
struct Contrast {
    name: String,
    pairs: Vec<Pair>,
    json: Value,
}

/// The contrasts of each model. The wins of either policy fix the concordant pairs.
fn primary() -> Vec<(String, Vec<Contrast>)> {
    let targets = targets();
    let count = |v: &Value| v.as_u64().unwrap() as usize;
    let games = count(&targets["primary"]["games"]);
    let models = targets["primary"]["models"].as_object().unwrap();
    let contrasts = |model: &str, data: &Value| {
        let contrast = |json: &Value| {
            let (baseline, treatment) = (
                json["baseline"].as_str().unwrap(),
                json["treatment"].as_str().unwrap(),
            );
            let (gained, lost) = (count(&json["treatment_only"]), count(&json["baseline_only"]));
            let both = count(&data["wins"][baseline]) - lost;
            assert_eq!(both + gained, count(&data["wins"][treatment]), "{model}: {json}");
            let mut pairs = Vec::new();
            for (baseline, treatment, n) in [
                (false, true, gained),
                (true, false, lost),
                (true, true, both),
                (false, false, games - gained - lost - both),
            ] {
                pairs.extend(vec![Pair { baseline, treatment }; n]);
            }
            let name = format!("{model}, {baseline} to {treatment}");
            Contrast {
                name,
                pairs,
                json: json.clone(),
            }
        };
        data["contrasts"]
            .as_array()
            .unwrap()
            .iter()
            .map(contrast)
            .collect()
    };
    models
        .iter()
        .map(|(model, data)| (model.clone(), contrasts(model, data)))
        .collect()
}

/// The printed value and half a unit of its last printed digit.
fn printed(number: &str) -> (f64, f64) {
    let (mantissa, exponent) = number.split_once('e').unwrap_or((number, "0"));
    let decimals = mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len()) as i32;
    let exponent: i32 = exponent.parse().unwrap();
    (number.parse().unwrap(), 0.5 * 10f64.powi(exponent - decimals))
}

#[test]
fn holm_adjusted_exact_mcnemar() {
    for (model, contrasts) in primary() {
        let raw: Vec<Option<f64>> = contrasts
            .iter()
            .map(|c| Counts::of(&c.pairs))
            .map(|counts| Some(mcnemar::p_value(counts.treatment_only, counts.baseline_only)))
            .collect();
        let adjusted = holm::adjust(&raw);
        for (contrast, p) in contrasts.iter().zip(&adjusted) {
            let (expected, tolerance) = printed(contrast.json["holm_p"].as_str().unwrap());
            let p = p.unwrap();
            assert!(
                (p - expected).abs() <= tolerance,
                "{}: {p:e}, expected {expected:e}",
                contrast.name
            );
        }
        if model.starts_with("Llama") {
            // Two contrasts tie at 21/0: the second would be 3 × p but for Holm's monotone rule.
            assert_eq!(adjusted[0], Some(4.0 * 0.5f64.powi(20)));
            assert_eq!(adjusted[1], adjusted[0]);
        }
        assert_eq!(adjusted[2], Some(1.0), "{model}");
    }
}

#[test]
fn differences_and_bootstrap_intervals() {
    for contrast in primary().into_iter().flat_map(|(_, contrasts)| contrasts) {
        let counts = Counts::of(&contrast.pairs);
        let points = 100.0 * counts.difference().unwrap();
        assert!(
            (points - contrast.json["diff_points"].as_f64().unwrap()).abs() < 1e-9,
            "{}",
            contrast.name
        );
        let ends = [0, 1].map(|end| contrast.json["ci95"][end].as_f64().unwrap());
        for seed in 0..10 {
            let found = bootstrap::paired(&differences(&contrast.pairs), bootstrap::DRAWS, seed).unwrap();
            // One game of 50 is a step of two points.
            let off = [100.0 * found.low - ends[0], 100.0 * found.high - ends[1]];
            assert!(
                off.iter().all(|off| off.abs() < 2.0 + 1e-9),
                "{}, seed {seed}: expected {ends:?}, found {found:?}",
                contrast.name
            );
        }
    }
}

#[test]
fn sampled_lane_differences() {
    let targets = targets();
    let lane = &targets["sampled"];
    let rows = lane["games"].as_f64().unwrap() * lane["seeds"].as_array().unwrap().len() as f64;
    let wins = |policy: &Value| -> f64 {
        let by_seed = lane["wins"][policy.as_str().unwrap()].as_array().unwrap();
        by_seed.iter().map(|wins| wins.as_f64().unwrap()).sum()
    };
    for contrast in lane["contrasts"].as_array().unwrap() {
        let points = 100.0 * (wins(&contrast["treatment"]) - wins(&contrast["baseline"])) / rows;
        assert!(
            (points - contrast["diff_points"].as_f64().unwrap()).abs() < 1e-9,
            "{contrast}: {points}"
        );
    }
}

/// All resamples of a few clusters: their pooled means, sorted.
fn every_resample(clusters: &[Vec<f64>]) -> Vec<f64> {
    let n = clusters.len();
    let mut means: Vec<f64> = (0..n.pow(n as u32))
        .map(|code| {
            let picked = (0..n).flat_map(|i| clusters[code / n.pow(i as u32) % n].iter());
            let (total, repeats) = picked.fold((0.0, 0.0), |(total, repeats), d| (total + d, repeats + 1.0));
            total / repeats
        })
        .collect();
    means.sort_by(f64::total_cmp);
    means
}

#[test]
fn bootstrap_against_enumeration() {
    let cases: [Vec<Vec<f64>>; 4] = [
        vec![vec![1.0], vec![0.0], vec![-1.0], vec![0.0], vec![1.0]],
        vec![
            vec![1.0, 1.0, 0.0],
            vec![0.0, -1.0, 0.0],
            vec![1.0, 0.0, 0.0],
            vec![0.0, 0.0, 0.0],
        ],
        vec![
            vec![2.5, 1.0],
            vec![-3.0],
            vec![0.25, 0.5, 4.0],
            vec![1.5],
            vec![-0.5, 0.0],
        ],
        vec![vec![1.0], vec![0.0, 0.0, 0.0, 0.0]],
    ];
    for clusters in cases {
        let means = every_resample(&clusters);
        let share = |below: &dyn Fn(&f64) -> bool| {
            means.iter().filter(|m| below(m)).count() as f64 / means.len() as f64
        };
        for seed in 0..5 {
            let Interval { low, high } = bootstrap::clustered(&clusters, bootstrap::DRAWS, seed).unwrap();
            // A quantile of 10,000 draws sits within 5 standard deviations, 0.008, of its level.
            for (end, level) in [(low, 0.025), (high, 0.975)] {
                let (under, at_most) = (share(&|m| *m < end - 1e-12), share(&|m| *m <= end + 1e-12));
                assert!(at_most > under, "{clusters:?}: {end} is no mean of a resample");
                assert!(
                    under < level + 0.008 && at_most > level - 0.008,
                    "{clusters:?}, seed {seed}: {under} < level {level} <= {at_most} is violated at {end}"
                );
            }
        }
    }
    // Clusters of one repeat are the paired bootstrap.
    let singles = [[1.0], [0.0], [-1.0], [1.0]];
    let flat = bootstrap::paired(&[1.0, 0.0, -1.0, 1.0], 1000, 7);
    assert_eq!(bootstrap::clustered(&singles, 1000, 7), flat);
}

#[test]
fn sign_flips_against_enumeration() {
    let thirds = |wins: &[i32]| -> Vec<f64> { wins.iter().map(|&w| f64::from(w) / 3.0).collect() };
    for clusters in [
        thirds(&[2, 1, 0, 0]),
        thirds(&[3, 3, 2, -1, 1, 0, 2]),
        thirds(&[1, 1, 1, 2, -2, 3, 3, 1, -1, 2]),
        vec![0.3, 1.7, -0.2, 0.9, 2.2, 1.1],
        vec![1.0; 8],
    ] {
        let observed = clusters.iter().sum::<f64>().abs();
        let extreme = (0..1u32 << clusters.len())
            .filter(|signs| {
                let flip = |(i, d): (usize, &f64)| if signs >> i & 1 == 1 { *d } else { -d };
                clusters.iter().enumerate().map(flip).sum::<f64>().abs() >= observed - 1e-9
            })
            .count();
        let exact = extreme as f64 / f64::from(1u32 << clusters.len());
        for seed in 0..5 {
            let p = sign_flip::p_value(&clusters, sign_flip::DRAWS, seed).unwrap();
            let draws = sign_flip::DRAWS as f64;
            let tolerance = 5.0 * (exact * (1.0 - exact) / draws).sqrt() + 1.0 / draws;
            assert!(
                (p - exact).abs() <= tolerance,
                "{clusters:?}, seed {seed}: expected {exact}, found {p}"
            );
        }
    }
}

/// On differences of one win the sign-flip test is McNemar's: a check of each by the other.
#[test]
fn sign_flips_agree_with_mcnemar() {
    for (gained, lost) in [(4, 3), (5, 5), (9, 2), (12, 4), (0, 3)] {
        let mut outcomes = vec![1.0; gained];
        outcomes.extend(vec![-1.0; lost]);
        outcomes.extend([0.0; 10]);
        let exact = mcnemar::p_value(gained as u64, lost as u64);
        let p = sign_flip::p_value(&outcomes, sign_flip::DRAWS, 11).unwrap();
        assert!(
            (p - exact).abs() < 0.008,
            "{gained}/{lost}: {p}, expected {exact}"
        );
    }
}

/// Nothing to estimate gives 1 or `None`, never a NaN and never a false certainty.
#[test]
fn degenerate_inputs() {
    let none: [f64; 0] = [];
    for (case, input) in [
        ("no pairs", none.to_vec()),
        ("one pair", vec![1.0]),
        ("all equal", vec![1.0 / 3.0; 20]),
        ("no discordant pair", vec![0.0; 50]),
        ("a NaN", vec![1.0, f64::NAN]),
        ("an infinity", vec![1.0, f64::INFINITY]),
    ] {
        assert_eq!(bootstrap::paired(&input, 100, 1), None, "{case}");
        let clusters: Vec<Vec<f64>> = input.iter().map(|&d| vec![d; 3]).collect();
        assert_eq!(bootstrap::clustered(&clusters, 100, 1), None, "{case}, clustered");
    }
    assert_eq!(bootstrap::paired(&[1.0, 0.0], 0, 1), None, "no draws");
    assert_eq!(
        bootstrap::clustered(&[vec![1.0, 0.0, -1.0]], 100, 1),
        None,
        "one cluster"
    );
    assert_eq!(
        bootstrap::clustered(&[vec![1.0, 0.0], vec![]], 100, 1),
        None,
        "one cluster and an empty one"
    );
    assert_eq!(
        bootstrap::clustered(&[[1.0, 0.0], [0.0, 1.0]], 100, 1),
        None,
        "clusters of one mean"
    );

    assert_eq!(sign_flip::p_value(&none, 100, 1), None, "no clusters");
    assert_eq!(
        sign_flip::p_value(&[0.0; 20], 100, 1),
        Some(1.0),
        "no difference anywhere"
    );
    assert_eq!(
        sign_flip::p_value(&[-1.0 / 3.0], 100, 1),
        Some(1.0),
        "one cluster"
    );
    assert_eq!(mcnemar::p_value(0, 0), 1.0);
    assert_eq!(Counts::of(&[]).difference(), None);
    assert_eq!(proportion::wilson(0, 0), None);
    assert_eq!(cluster_means(&[none]), none);
}

fn wins(clusters: usize) -> impl Strategy<Value = Vec<Vec<f64>>> {
    let repeats = prop::collection::vec((-1i8..=1).prop_map(f64::from), 0..4);
    prop::collection::vec(repeats, 0..clusters)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mcnemar_is_a_symmetric_probability(a in 0u64..2000, b in 0u64..2000) {
        let p = mcnemar::p_value(a, b);
        prop_assert!((0.0..=1.0).contains(&p), "{}/{}: {}", a, b, p);
        prop_assert_eq!(p, mcnemar::p_value(b, a));
        // More one-sided evidence never raises p.
        prop_assert!(mcnemar::p_value(a.max(b) + 1, a.min(b)) <= p * (1.0 + 1e-12));
    }

    #[test]
    fn holm_is_monotone_and_permutes(
        p in prop::collection::vec(prop::option::weighted(0.9, 0.0f64..=1.0), 0..8), turn in 0usize..8,
    ) {
        let adjusted = holm::adjust(&p);
        for (raw, new) in p.iter().zip(&adjusted) {
            prop_assert_eq!(raw.is_some(), new.is_some());
            prop_assert!(raw <= new && new.unwrap_or(1.0) <= 1.0, "{:?} became {:?}", raw, new);
        }
        for (i, a) in p.iter().enumerate() {
            prop_assert!((0..p.len()).all(|j| *a > p[j] || adjusted[i] <= adjusted[j]));
        }
        let turned = |v: &[Option<f64>]| {
            let mut v = v.to_vec();
            v.rotate_left(turn % p.len().max(1));
            v
        };
        prop_assert_eq!(holm::adjust(&turned(&p)), turned(&adjusted));
    }

    #[test]
    fn resampling_ignores_order_and_direction(clusters in wins(9), turn in 0usize..9, seed: u64) {
        let mut turned = clusters.clone();
        turned.rotate_left(turn % clusters.len().max(1));
        turned.iter_mut().for_each(|repeats| repeats.reverse());
        let interval = bootstrap::clustered(&clusters, 200, seed);
        prop_assert_eq!(interval, bootstrap::clustered(&turned, 200, seed));
        if let Some(Interval { low, high }) = interval {
            prop_assert!(-1.0 <= low && low <= high && high <= 1.0);
        }
        let means = cluster_means(&clusters);
        let p = sign_flip::p_value(&means, 500, seed);
        prop_assert_eq!(p, sign_flip::p_value(&cluster_means(&turned), 500, seed));
        prop_assert_eq!(p, sign_flip::p_value(&means.iter().map(|d| -d).collect::<Vec<_>>(), 500, seed));
        prop_assert_eq!(p.is_some(), !means.is_empty());
        prop_assert!(p.is_none_or(|p| 0.0 < p && p <= 1.0));
    }

    #[test]
    fn wilson_holds_the_rate(trials in 1u64..5000, share in 0.0f64..=1.0) {
        let successes = (share * trials as f64) as u64;
        let Interval { low, high } = proportion::wilson(successes, trials).unwrap();
        let rate = successes as f64 / trials as f64;
        prop_assert!(0.0 <= low && low <= rate && rate <= high && high <= 1.0);
    }
}
