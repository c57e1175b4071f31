//! Tables of locks: what they must have, and how they are made.

use std::sync::Arc;

use super::server::SqlServer;
use super::url::DatabaseKind;
use crate::compat::store::StoreResult;
use crate::error::{Result, StoreProblem};

/// A column, and the types that it may have; none for any type.
pub(super) type Column = (String, &'static [&'static str]);

#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: String,
    /// The statement that makes it.
    pub(super) create: String,
    pub(super) columns: Vec<Column>,
    /// What is unique in it, in the order of the alphabet: without that, two clients would hold.
    pub(super) key: Vec<String>,
}

impl Table {
    /// Whether the table is as it must be.
    pub(super) async fn check(&self, server: &Arc<SqlServer>) -> Result<()> {
        let checked = self.find_fault(server).await;
        checked.map_err(|problem| server.failed("use", &self.name, self.explain(problem)))
    }

    pub(super) async fn create(&self, server: &Arc<SqlServer>) -> Result<()> {
        let made = server.run(&self.create, &[]).await;
        made.map_err(|problem| server.failed("create", &self.name, problem))?;
        Ok(())
    }

    /// Adds the way out to a problem with the table.
    pub(super) fn explain(&self, problem: StoreProblem) -> StoreProblem {
        match problem {
            StoreProblem::Schema(why) => {
                let (name, create) = (&self.name, &self.create);
                StoreProblem::Schema(format!("table {name}: {why}. It is made by: {create}"))
            }
            other => other,
        }
    }

    async fn find_fault(&self, server: &Arc<SqlServer>) -> StoreResult<()> {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| &**name).collect();
        // It tells a missing table, a missing column and a missing right apart.
        let none = format!("SELECT {} FROM {} WHERE 1 = 0", names.join(", "), self.name);
        server.run(&none, &[]).await?;
        let types = server.dialect().pick(
            // A time without thousandths would end a lock up to half a second too early.
            "SELECT attname::text, format_type(atttypid, CASE WHEN atttypmod BETWEEN 0 AND 2 \
             AND atttypid = 'timestamp'::regtype THEN atttypmod END) FROM pg_attribute \
             WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped",
            "SELECT column_name, CONCAT(data_type, \
             IF(datetime_precision > 0, CONCAT('(', datetime_precision, ')'), '')) \
             FROM information_schema.columns \
             WHERE table_schema = SUBSTRING_INDEX(?, '.', 1) \
             AND table_name = SUBSTRING_INDEX(?, '.', -1)",
        );
        let name = self.full_name(server).await?;
        let named = server.dialect().pick(vec![&*name], vec![&*name, &*name]);
        let found = server.run(types, &named).await?;
        for (name, allowed) in &self.columns {
            let of_name = |row: &&Vec<Option<String>>| {
                let cell = row.first().and_then(Option::as_deref);
                cell.is_some_and(|found| found.eq_ignore_ascii_case(name))
            };
            let column = found.rows.iter().find(of_name);
            let given = column.and_then(|row| row.get(1)?.as_deref());
            if let Some(given) = given.filter(|_| !allowed.is_empty()) {
                if !allowed.contains(&given) {
                    let allowed = allowed.join(" or ");
                    let why = format!("column {name} is a {given}, and not a {allowed}");
                    return Err(StoreProblem::Schema(why));
                }
            }
        }
        self.check_key(server, named).await
    }

    /// With its database, in MariaDB and MySQL.
    async fn full_name(&self, server: &Arc<SqlServer>) -> StoreResult<String> {
        if self.name.contains('.') || server.dialect().pick(true, false) {
            return Ok(self.name.clone());
        }
        let answer = server.run("SELECT DATABASE()", &[]).await?;
        let database = answer.cell(0).unwrap_or_default();
        Ok(format!("{database}.{}", self.name))
    }

    async fn check_key(&self, server: &Arc<SqlServer>, named: Vec<&str>) -> StoreResult<()> {
        let sql = server.dialect().pick(
            "SELECT 1 FROM pg_index i WHERE indrelid = $1::regclass AND indisunique \
             AND indpred IS NULL AND $2 = (SELECT string_agg(attname, ',' ORDER BY attname) \
             FROM pg_attribute a WHERE a.attrelid = i.indrelid AND attnum = ANY (i.indkey::int2[]))",
            "SELECT 1 FROM information_schema.statistics \
             WHERE table_schema = SUBSTRING_INDEX(?, '.', 1) \
             AND table_name = SUBSTRING_INDEX(?, '.', -1) AND non_unique = 0 GROUP BY index_name \
             HAVING GROUP_CONCAT(LOWER(column_name) ORDER BY LOWER(column_name)) = ?",
        );
        let key = self.key.join(",");
        let params = [named, vec![&*key]].concat();
        match server.run(sql, &params).await?.cell(0) {
            Some(_) => Ok(()),
            None => Err(StoreProblem::Schema(format!(
                "({key}) is neither its primary key nor unique, so two clients could hold"
            ))),
        }
    }
}

/// Types of a column with text.
pub(super) fn text(dialect: DatabaseKind) -> &'static [&'static str] {
    dialect.pick(
        &["text", "character varying", "character"],
        &["varchar", "char", "varbinary", "binary", "text", "blob"],
    )
}

/// Types of a column with a time in UTC and without a zone, as other programs write it.
pub(super) fn time(dialect: DatabaseKind) -> &'static [&'static str] {
    dialect.pick(
        &["timestamp without time zone"],
        &["timestamp(3)", "timestamp(6)", "datetime(3)", "datetime(6)"],
    )
}
