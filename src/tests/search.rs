//! The search: every state that can be reached, each once, the nearest first. (pure)
//!
//! Invariants: a violation is told with a shortest way to it; a search that ends without one has
//! seen every reachable state, and has proved that no run goes on for ever, or, where time passes,
//! that a goal stays in reach. It knows nothing of locks.

use std::fmt::{self, Write as _};

use super::fingerprint::ByPrint;

/// What can be searched.
pub(in crate::tests) trait Model: Sized {
    type Action: Copy;

    /// Whether a run may go on for ever, as time does. Then a goal must be in reach of each state.
    const IS_ENDLESS: bool = false;

    /// What can happen next, in an order that depends on the state only.
    fn actions(&self) -> Vec<Self::Action>;

    /// What it leads to; none if it would change nothing; `Err` with the rule that is broken by it.
    fn after(&self, action: Self::Action) -> Result<Option<Self>, String>;

    /// Whether this can happen without any fault.
    fn is_progress(action: Self::Action) -> bool;

    /// Looks at a state in which nothing more happens by itself.
    fn at_rest(&self) -> Result<(), String>;

    /// Whether everybody has got what they wanted.
    fn is_goal(&self) -> bool {
        false
    }

    fn fingerprint(&self) -> u128;

    /// The action and its outcome in plain words.
    fn tell(&self, action: Self::Action, after: Option<&Self>) -> String;
}

/// What a search has seen.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::tests) struct Seen {
    pub(in crate::tests) states: usize,
    pub(in crate::tests) transitions: usize,
    pub(in crate::tests) depth: usize,
}

/// A broken rule, with a shortest way to it.
#[derive(Debug)]
pub(in crate::tests) struct Counterexample {
    pub(in crate::tests) steps: usize,
    told: String,
    pub(in crate::tests) why: String,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.told, self.why)
    }
}

/// How a state was first reached: from which one, and by which of its actions.
type Step = (u32, u16);

#[derive(Default)]
struct Graph {
    steps: Vec<Step>,
    /// By state.
    goals: Vec<bool>,
    /// Where the transitions of each state begin among all.
    begins: Vec<usize>,
    targets: Vec<u32>,
}

/// Sees everything that can be reached from the start, or says how a rule is broken.
pub(in crate::tests) fn search<M: Model>(
    start: impl Fn() -> M,
    most: usize,
) -> Result<Seen, Counterexample> {
    let mut known: ByPrint<u32> = ByPrint::default();
    let mut graph = Graph::default();
    let first = start();
    graph.add((0, 0), &first);
    known.insert(first.fingerprint(), 0);
    let (mut level, mut depth) = (vec![(0_u32, first)], 0);
    while !level.is_empty() {
        let mut next = Vec::new();
        for (number, state) in level {
            graph.begins.push(graph.targets.len());
            let mut is_at_rest = true;
            for (at, action) in state.actions().into_iter().enumerate() {
                let at = u16::try_from(at).expect("fewer actions");
                let after = match state.after(action) {
                    Ok(Some(after)) => after,
                    Ok(None) => continue,
                    Err(why) => return Err(graph.broken(&start(), number, Some(at), why)),
                };
                is_at_rest &= !M::is_progress(action);
                let fresh = u32::try_from(graph.steps.len()).expect("fewer states");
                let target = *known.entry(after.fingerprint()).or_insert(fresh);
                graph.targets.push(target);
                if target == fresh {
                    graph.add((number, at), &after);
                    next.push((fresh, after));
                }
            }
            if is_at_rest {
                if let Err(why) = state.at_rest() {
                    return Err(graph.broken(&start(), number, None, why));
                }
            }
            if graph.steps.len() > most {
                let why = format!("more than {most} states: this search does not end");
                return Err(graph.broken(&start(), 0, None, why));
            }
        }
        depth += usize::from(!next.is_empty());
        level = next;
    }
    graph.begins.push(graph.targets.len());
    let (stuck, why) = match M::IS_ENDLESS {
        true => (graph.without_goal(), "no goal is in reach from here"),
        false => (graph.on_a_circle(), "this can go on for ever"),
    };
    if let Some(number) = stuck {
        return Err(graph.broken(&start(), number, None, why.into()));
    }
    Ok(Seen {
        states: graph.steps.len(),
        transitions: graph.targets.len(),
        depth,
    })
}

impl Graph {
    fn add<M: Model>(&mut self, step: Step, state: &M) {
        self.steps.push(step);
        self.goals.push(M::IS_ENDLESS && state.is_goal());
    }

    fn broken<M: Model>(
        &self,
        start: &M,
        number: u32,
        last: Option<u16>,
        why: String,
    ) -> Counterexample {
        let way = self.way(number, last);
        Counterexample {
            steps: way.len(),
            told: tell(start, &way),
            why,
        }
    }

    /// The first state from which no goal can be reached, if there is any.
    fn without_goal(&self) -> Option<u32> {
        let states = self.steps.len();
        let mut leads_here: Vec<Vec<u32>> = vec![Vec::new(); states];
        for number in 0..states {
            for target in &self.targets[self.begins[number]..self.begins[number + 1]] {
                leads_here[*target as usize].push(u32::try_from(number).ok()?);
            }
        }
        let mut has_goal = self.goals.clone();
        let mut left: Vec<usize> = (0..states).filter(|number| has_goal[*number]).collect();
        while let Some(number) = left.pop() {
            for before in &leads_here[number] {
                let before = *before as usize;
                if !std::mem::replace(&mut has_goal[before], true) {
                    left.push(before);
                }
            }
        }
        let stuck = has_goal.iter().position(|has_goal| !has_goal)?;
        u32::try_from(stuck).ok()
    }

    /// The actions that lead to a state, and one more.
    fn way(&self, mut number: u32, last: Option<u16>) -> Vec<u16> {
        let mut way: Vec<u16> = last.into_iter().collect();
        while number != 0 {
            let (before, at) = self.steps[number as usize];
            way.push(at);
            number = before;
        }
        way.reverse();
        way
    }

    /// A state from which it can be reached again, if there is any: whatever is left when the
    /// states that nothing leads to are taken away one after another.
    fn on_a_circle(&self) -> Option<u32> {
        let mut leads_here = vec![0_u32; self.steps.len()];
        for target in &self.targets {
            leads_here[*target as usize] += 1;
        }
        let mut free: Vec<usize> = (leads_here[0] == 0).then_some(0).into_iter().collect();
        while let Some(number) = free.pop() {
            for target in &self.targets[self.begins[number]..self.begins[number + 1]] {
                let count = &mut leads_here[*target as usize];
                *count -= 1;
                if *count == 0 {
                    free.push(*target as usize);
                }
            }
        }
        let left = leads_here.iter().position(|count| *count > 0)?;
        u32::try_from(left).ok()
    }
}

/// The way from the start in plain words.
fn tell<M: Model>(start: &M, way: &[u16]) -> String {
    let mut told = String::new();
    let mut state: Option<M> = None;
    for (number, at) in way.iter().enumerate() {
        let before = state.as_ref().unwrap_or(start);
        let action = before.actions()[usize::from(*at)];
        let after = before.after(action).ok().flatten();
        let words = before.tell(action, after.as_ref());
        writeln!(told, "{:3}. {words}", number + 1).unwrap();
        if after.is_some() {
            state = after;
        }
    }
    told
}
