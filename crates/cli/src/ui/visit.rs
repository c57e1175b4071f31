//! A visit of the doctor: what is looked at between two rounds of reading, and what the rounds
//! show.

use std::collections::HashMap;
use std::time::SystemTime;

use lockkeeper::{Keeper, Token};

use super::picture::Examined;
use crate::args::Server;
use crate::doctor::{self, Census, Finding, Queue, Rounds};
use crate::failure::Failure;
use crate::process::{self, Doing};
use crate::report;

pub(super) struct Visit {
    doing: HashMap<Token, Doing>,
    census: Result<Census, String>,
    settings: Result<Vec<Finding>, Failure>,
}

impl Visit {
    /// Looks at processes, sessions and settings.
    pub(super) async fn pay(server: &Server, keeper: &Keeper, queues: &[Queue]) -> Self {
        Self {
            doing: process::of(doctor::tickets(queues)).await,
            census: doctor::ask(server).await,
            settings: doctor::weaknesses(keeper).await,
        }
    }

    /// What is wrong, now that all queues were read again.
    pub(super) fn compare(self, before: &[Queue], now: &[Queue], many: usize) -> Examined {
        let rounds = Rounds {
            before,
            now,
            doing: &self.doing,
            census: self.census.as_ref().ok(),
            many,
        };
        let mut findings = rounds.findings();
        let mut unchecked = Vec::new();
        match self.settings {
            Ok(settings) => findings.extend(settings),
            Err(failure) => unchecked.push(report::in_one_line(&failure)),
        }
        if let Err(why) = self.census {
            unchecked.push(format!("no search for tickets without a session: {why}"));
        }
        Examined {
            at: SystemTime::now(),
            findings,
            unchecked,
        }
    }
}
