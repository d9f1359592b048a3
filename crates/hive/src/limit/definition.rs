//! The definition of a limit, and the [`Terms`] that follow from it: its burst, how long a batch lives, and whether the
//! node or the store decides on a request.

use honeyflow_event::Name;
use honeyflow_runtime::Failure;

use super::rate::{Calendar, MICRO, PERMITS_MAX, Quota, Rate};
use crate::{codes, contract::limit::Rule};

pub const MILLISECOND: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLISECOND;

/// The default burst: the permits that the rate gives in this time.
const BURST_MS: u64 = 200;
/// Limits with a period of at least this length have a default burst of their whole count.
const LONG_PERIOD_MS: u64 = 60_000;
/// With a smaller burst, or a shorter life, a batch would be too small or expire before it is used, so that the store
/// decides on every request.
const BURST_MIN: u64 = 4;
const LIFE_MIN_NS: u64 = 20 * MILLISECOND;
pub const KEYS_MAX: usize = 100_000;
/// The store also keeps the name with a prefix of five characters, and has room for 191 characters at most.
const NAME_CHARS_MAX: usize = 186;

/// What a limit does while its store does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnOutage {
    /// The node admits its share of the rate.
    #[default]
    Safe,
    Closed,
    Open,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitKind {
    Quota(Quota),
    /// At most `max` at the same time, on all nodes together.
    Slots {
        max: u64,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Definition {
    pub name: Name,
    pub kind: LimitKind,
    pub on_outage: OnOutage,
    /// The store decides on every request, even if batches would be possible.
    pub exact: bool,
    pub keys_max: usize,
    pub version: u64,
}

impl Definition {
    /// # Errors
    /// `bad-limit`: the quota does not parse.
    pub fn parse(name: &str, quota: &str) -> Result<Definition, Failure> {
        Ok(Definition::new(name, LimitKind::Quota(quota.parse()?)))
    }

    pub fn slots(name: &str, max: u64) -> Definition {
        Definition::new(name, LimitKind::Slots { max })
    }

    pub fn new(name: &str, what: LimitKind) -> Definition {
        Definition {
            name: name.into(),
            kind: what,
            on_outage: OnOutage::default(),
            exact: false,
            keys_max: KEYS_MAX,
            version: 1,
        }
    }

    #[must_use]
    pub fn on_outage(self, on_outage: OnOutage) -> Definition {
        Definition { on_outage, ..self }
    }

    /// Lets the store decide on every request.
    #[must_use]
    pub fn exact(self) -> Definition {
        Definition { exact: true, ..self }
    }

    #[must_use]
    pub fn keys_max(self, keys_max: usize) -> Definition {
        Definition { keys_max, ..self }
    }
}

/// Who decides on a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decider {
    /// The node, with batches that it draws from the store's bucket; each expires after `life_ns`.
    Pool { life_ns: u64 },
    /// The store, on every request.
    Exact,
    /// The store, on every request; the whole quota is available again at the start of the next calendar window.
    Calendar(Calendar),
    /// The node, with slots that it holds in the store.
    Slots,
}

impl Decider {
    pub fn name(self) -> &'static str {
        match self {
            Decider::Pool { .. } => "pool",
            Decider::Exact => "exact",
            Decider::Calendar(_) => "calendar",
            Decider::Slots => "slots",
        }
    }
}

/// The limit in force, as plain numbers that are computed once per version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    pub version: u64,
    pub rate: Rate,
    pub burst: u64,
    pub decider: Decider,
    pub on_outage: OnOutage,
    /// The store decides on every request, even if batches would be possible.
    pub exact: bool,
}

impl Terms {
    /// # Errors
    /// `bad-limit`: the store cannot keep these numbers, or a name of this length.
    pub fn from_definition(definition: &Definition) -> Result<Terms, Failure> {
        let bad = |why: String| Failure::reject(codes::BAD_LIMIT, format!("limit {}: {why}", definition.name));
        let Definition { version, on_outage, exact, .. } = *definition;
        let chars = definition.name.chars().count();
        if chars == 0 || chars > NAME_CHARS_MAX {
            return Err(bad(format!("a name of {chars} characters: it needs between 1 and {NAME_CHARS_MAX}")));
        }
        let (rate, burst) = match definition.kind {
            LimitKind::Slots { max } => {
                if max == 0 || max > PERMITS_MAX {
                    return Err(bad(format!("{max} slots: there must be between 1 and {PERMITS_MAX}")));
                }
                // A slot becomes free when its holder gives it back; the rate is never used.
                let rate = Rate::per_second(1);
                return Ok(Terms { version, rate, burst: max, decider: Decider::Slots, on_outage, exact });
            }
            LimitKind::Quota(Quota::Calendar { permits, every }) => {
                let rate = Rate { permits, period_ms: super::calendar::longest_ms(every) };
                return Ok(Terms {
                    version,
                    rate,
                    burst: permits,
                    decider: Decider::Calendar(every),
                    on_outage,
                    exact,
                });
            }
            LimitKind::Quota(Quota::Rate { rate, burst }) => (rate, burst),
        };
        if rate.permits == 0 || rate.period_ms == 0 || burst == Some(0) {
            return Err(bad("neither count nor period nor burst may be 0".to_owned()));
        }
        let burst = burst.unwrap_or_else(|| default_burst(rate));
        if burst > PERMITS_MAX || rate.permits > PERMITS_MAX {
            return Err(bad(format!("count and burst must not be above {PERMITS_MAX}")));
        }
        Ok(Terms { version, rate, burst, decider: decider(rate, burst, exact), on_outage, exact })
    }

    /// The rule that the store keeps for this limit.
    pub fn rule(&self) -> Rule {
        match self.decider {
            Decider::Pool { .. } | Decider::Exact => Rule::rate(self.rate.permits, self.rate.period_ms, self.burst),
            Decider::Calendar(_) | Decider::Slots => Rule::count(self.burst),
        }
    }

    /// Returns the terms of the same limit under a rule that was read from the store.
    #[must_use]
    pub fn with_rule(&self, rule: Rule, version: u64) -> Terms {
        // A rate under this name comes from the configuration of another node. It does not say how many slots there
        // are.
        let is_rate = self.decider == Decider::Slots && rule.rate_u > 0;
        let burst = if is_rate { self.burst } else { rule.burst_u / MICRO };
        let (rate, decider) = match self.decider {
            Decider::Calendar(every) => (Rate { permits: burst.max(1), ..self.rate }, Decider::Calendar(every)),
            Decider::Slots => (self.rate, Decider::Slots),
            Decider::Pool { .. } | Decider::Exact => {
                let rate = self.rate_of(rule);
                (rate, decider(rate, burst, self.exact))
            }
        };
        Terms { version, rate, burst, decider, ..*self }
    }

    /// Returns the rule's rate in the period that was written, if that gives a whole count; otherwise in the lowest
    /// terms, as the store keeps it.
    fn rate_of(&self, rule: Rule) -> Rate {
        let (rate_u, period_ms) = (u128::from(rule.rate_u.max(1)), u128::from(rule.period_ms.max(1)));
        let micro = rate_u * u128::from(self.rate.period_ms);
        let whole = micro % (period_ms * u128::from(MICRO)) == 0;
        let permits = u64::try_from(micro / period_ms / u128::from(MICRO)).unwrap_or(0);
        if whole && permits > 0 {
            return Rate { permits, ..self.rate };
        }
        Rate { permits: rule.rate_u.max(1), period_ms: rule.period_ms.max(1).saturating_mul(MICRO) }
    }

    /// The highest cost of one request; the limit could never meet a higher one.
    pub fn cost_max(&self) -> u64 {
        match self.decider {
            Decider::Pool { .. } => self.burst / 2,
            Decider::Exact | Decider::Calendar(_) | Decider::Slots => self.burst,
        }
    }

    /// The remark of `check` about a limit for which the store decides although the definition does not ask for that.
    pub fn remark(&self, definition: &Definition) -> Option<String> {
        let chosen = self.decider == Decider::Exact && !definition.exact;
        chosen.then(|| {
            format!(
                "limit {} asks the store for every decision: a burst of {} at this rate is too small for batches",
                definition.name, self.burst
            )
        })
    }
}

/// Chooses the decider from the numbers alone, so that all nodes that read the same rule choose the same.
fn decider(rate: Rate, burst: u64, exact: bool) -> Decider {
    // Half of the burst B waits in the store, the other half may be in batches. At the rate L a batch lives B / 2L.
    let life_ns = rate.ns_for(burst) / 2;
    let batches = burst >= BURST_MIN && life_ns >= LIFE_MIN_NS && !exact;
    if batches { Decider::Pool { life_ns } } else { Decider::Exact }
}

fn default_burst(rate: Rate) -> u64 {
    if rate.period_ms >= LONG_PERIOD_MS {
        return rate.permits;
    }
    (rate.micro_in(BURST_MS) / MICRO).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(quota: &str) -> Terms {
        Terms::from_definition(&Definition::parse("api", quota).unwrap()).unwrap()
    }

    /// HV-60
    #[test]
    fn hv_60_the_default_burst_is_a_fifth_of_a_second_or_the_count_of_a_long_period() {
        assert_eq!(terms("1000/s").burst, 200);
        assert_eq!(terms("3/s").burst, 1);
        assert_eq!(terms("1000/min").burst, 1000);
        assert_eq!(terms("1000/min burst 50").burst, 50);
        assert_eq!(terms("100/10s").burst, 2);
    }

    /// HV-68: other nodes may have a newer configuration, in which the limit is a rate.
    #[test]
    fn hv_68_a_rate_under_the_same_name_does_not_change_the_number_of_slots() {
        let slots = Terms::from_definition(&Definition::slots("api", 20)).unwrap();
        assert_eq!(slots.with_rule(terms("500/s burst 100").rule(), 7).burst, 20);
        assert_eq!(slots.with_rule(Rule::count(5), 8).burst, 5);
    }

    /// HV-65
    #[test]
    fn hv_65_small_limits_are_exact_by_default_and_get_a_remark() {
        assert_eq!(terms("1000/s").decider, Decider::Pool { life_ns: 100 * MILLISECOND });
        for small in ["3/h", "15/s", "1000/s burst 39"] {
            assert_eq!(terms(small).decider, Decider::Exact, "{small}");
            let definition = Definition::parse("api", small).unwrap();
            assert!(terms(small).remark(&definition).unwrap().contains("every decision"), "{small}");
        }
        assert_eq!(terms("1000/s burst 40").decider, Decider::Pool { life_ns: 20 * MILLISECOND });
        assert_eq!(terms("10000/month").decider, Decider::Calendar(Calendar::Month));
        assert_eq!(terms("20/s").remark(&Definition::parse("api", "20/s").unwrap()), None);
    }

    /// HV-71: a rule that is read from the store means the same as the quota that was written.
    #[test]
    fn hv_71_a_rule_of_the_store_is_read_as_it_was_written() {
        for quota in ["1000/s", "3/h", "7/week", "1000/min burst 50", "100/10s burst 40"] {
            let terms = terms(quota);
            assert_eq!(terms.with_rule(terms.rule(), terms.version), terms, "{quota}");
        }
        let halved = terms("1000/s").with_rule(terms("500/s").rule(), 2);
        assert_eq!(halved, Terms { version: 2, ..terms("500/s") });
        let odd = terms("1000/s").with_rule(terms("1000/min").rule(), 2);
        assert!((odd.rate.as_per_second() - 1000.0 / 60.0).abs() < 1e-9, "{odd:?}");
        assert_eq!(odd.decider, Decider::Pool { life_ns: 30 * SECOND });
        let small = terms("1000/s").with_rule(terms("3/s").rule(), 2);
        assert_eq!(small, Terms { version: 2, ..terms("3/s") }, "too small for batches, so that the store decides");
        assert_eq!(small.with_rule(terms("1000/s").rule(), 3), Terms { version: 3, ..terms("1000/s") }, "and back");
    }

    /// HV-71: with its prefix, the longest allowed name still fits into every store.
    #[test]
    fn hv_71_a_name_that_is_too_long_for_a_store_is_refused() {
        let named = |chars: usize| Terms::from_definition(&Definition::slots(&"\u{e9}".repeat(chars), 1));
        assert!(named(NAME_CHARS_MAX).is_ok() && named(1).is_ok());
        assert!(named(0).is_err());
        let failure = named(NAME_CHARS_MAX + 1).expect_err("too long");
        assert!(failure.code == "bad-limit" && failure.message.contains("between 1 and 186"), "{failure}");
        let longest = crate::limit::service::change::declared_name(&"x".repeat(NAME_CHARS_MAX));
        assert_eq!(longest.chars().count(), 191);
    }

    #[test]
    fn numbers_that_the_store_cannot_keep_are_refused() {
        assert!(Terms::from_definition(&Definition::slots("workers", 0)).is_err());
        let rate = Rate { permits: 0, period_ms: 1 };
        assert!(
            Terms::from_definition(&Definition::new("x", LimitKind::Quota(Quota::Rate { rate, burst: None }))).is_err()
        );
    }
}
