//! The search: every state that can be reached, each once, the nearest first. (pure)
//!
//! Invariants: a violation is told with a shortest way to it; a search that ends without one has
//! seen every reachable state, and has proved that no run goes on for ever. It knows nothing of
//! locks.

use std::fmt::Write as _;

use super::known::ByPrint;

/// What can be searched.
pub(super) trait Model: Sized {
    type Action: Copy;

    /// What can happen next, in an order that depends on the state only.
    fn actions(&self) -> Vec<Self::Action>;

    /// What it leads to; none if it would change nothing; `Err` with the rule that is broken by it.
    fn after(&self, action: Self::Action) -> Result<Option<Self>, String>;

    /// Whether this can happen without any fault.
    fn is_progress(action: Self::Action) -> bool;

    /// Looks at a state in which nothing more happens by itself.
    fn at_rest(&self) -> Result<(), String>;

    fn fingerprint(&self) -> u128;

    /// The action and its outcome in plain words.
    fn tell(&self, action: Self::Action, after: Option<&Self>) -> String;
}

/// What a search has seen.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) states: usize,
    pub(super) transitions: usize,
    pub(super) depth: usize,
}

/// How a state was first reached: from which one, and by which of its actions.
type Step = (u32, u16);

struct Graph {
    steps: Vec<Step>,
    /// Where the transitions of each state begin among all.
    begins: Vec<usize>,
    targets: Vec<u32>,
}

/// Sees everything that can be reached from the start, or says how a rule is broken.
pub(super) fn search<M: Model>(start: impl Fn() -> M, most: usize) -> Result<Seen, String> {
    let mut known: ByPrint<u32> = ByPrint::default();
    let mut graph = Graph {
        steps: vec![(0, 0)],
        begins: Vec::new(),
        targets: Vec::new(),
    };
    let first = start();
    known.insert(first.fingerprint(), 0);
    let (mut level, mut depth) = (vec![(0_u32, first)], 0);
    while !level.is_empty() {
        let mut next = Vec::new();
        for (number, state) in level {
            graph.begins.push(graph.targets.len());
            let mut is_at_rest = true;
            for (at, action) in state.actions().into_iter().enumerate() {
                let at = u16::try_from(at).map_err(|_| "too many actions")?;
                let after = match state.after(action) {
                    Ok(Some(after)) => after,
                    Ok(None) => continue,
                    Err(why) => {
                        let way = graph.way(number, Some(at));
                        return Err(format!("{}\n{why}", tell(&start(), &way)));
                    }
                };
                is_at_rest &= !M::is_progress(action);
                let fresh = u32::try_from(graph.steps.len()).map_err(|_| "too many states")?;
                let target = *known.entry(after.fingerprint()).or_insert(fresh);
                graph.targets.push(target);
                if target == fresh {
                    graph.steps.push((number, at));
                    next.push((fresh, after));
                }
            }
            if is_at_rest {
                if let Err(why) = state.at_rest() {
                    let way = graph.way(number, None);
                    return Err(format!("{}\n{why}", tell(&start(), &way)));
                }
            }
            if graph.steps.len() > most {
                return Err(format!("more than {most} states: this search does not end"));
            }
        }
        depth += usize::from(!next.is_empty());
        level = next;
    }
    graph.begins.push(graph.targets.len());
    if let Some(number) = graph.on_a_circle() {
        let way = graph.way(number, None);
        return Err(format!("{}\nthis can go on for ever", tell(&start(), &way)));
    }
    Ok(Seen {
        states: graph.steps.len(),
        transitions: graph.targets.len(),
        depth,
    })
}

impl Graph {
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
